"""The keys of a file's architecture, such as `llama.block_count`: of the type and size that they must have.

Every error is a ModelError that names the file and the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from specserve_gguf.cursor import broken

if TYPE_CHECKING:
    from specserve.api import ModelError
    from specserve_gguf.metadata import Value
    from specserve_gguf.model_file import ModelFile

MAX_LAYERS = 512
"""llama.cpp has the same limit."""
NEUTRAL = frozenset(
    ("vocab_size", "feed_forward_length", "rope.scaling.finetuned", "attention.causal", "tensor_data_layout")
)
"""They change nothing, or say what tensors say."""
MAX_EXPERTS = 1024
MAX_HEAD = 1024
MAX_SIZE = (1 << 31) - 1


class Keys:
    """`name` is without the architecture's own and its dot."""

    def __init__(self, file: ModelFile, architecture: str) -> None:
        self.file, self.architecture = file, architecture
        self._asked: set[str] = set()

    def unread(self) -> list[str]:
        """Keys of the architecture that nobody asked for and that are not known to change nothing."""
        prefix = f"{self.architecture}."
        known = {f"{prefix}{name}" for name in self._asked | NEUTRAL}
        return sorted(key for key in self.file.metadata if key.startswith(prefix) and key not in known)

    def value(self, name: str) -> Value | None:
        self._asked.add(name)
        return self.file.metadata.get(f"{self.architecture}.{name}")

    def wrong(self, name: str, allowed: str) -> ModelError:
        got = self.value(name)
        return broken(self.file.file, f"key {self.architecture}.{name} must be {allowed}; got {got!r}"[:400])

    def whole(self, name: str, default: int | None = None) -> int:
        """A number of at least 1; of a list with one for each layer, where all are the same, that."""
        value = alike(self.value(name))
        if value is None and default is not None:
            return default
        if type(value) is not int or not 1 <= value <= MAX_SIZE:
            raise self.wrong(name, "a whole number, at least 1, the same in all layers")
        return value

    def at_most(self, name: str, limit: int, default: int | None = None) -> int:
        """What is made for each of them, or of this size, before tensors tell that there are fewer."""
        count = self.whole(name, default)
        if count > limit:
            raise self.wrong(name, f"at most {limit}")
        return count

    def count(self, name: str, limit: int) -> int:
        """A number that may be 0, which it is where the file says nothing; of a list likewise."""
        value = alike(self.value(name))
        if value is None:
            return 0
        if type(value) is not int or not 0 <= value <= limit:
            raise self.wrong(name, f"a whole number, at most {limit}")
        return value

    def counts_of_layers(self, name: str, num_layers: int) -> list[int]:
        """One number for all layers, or one for each, which may be 0."""
        value = self.value(name)
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and len(value) == num_layers and value.min() >= 0:
            return [int(each) for each in value]
        if type(value) is int and 0 < value <= MAX_SIZE:
            return [value] * num_layers
        raise self.wrong(name, f"a whole number, or one for each of {num_layers} layers")

    def number(self, name: str, default: float | None = None) -> float:
        """A positive number. Files have it in 32 bits: the shortest decimal of which these are the bits."""
        value = self.value(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self.wrong(name, "a positive number")
        return float(str(np.float32(value)))

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def flags_of_layers(self, name: str, num_layers: int) -> list[bool] | None:
        """One for each layer, or by a period after which one is false; None where the file says nothing."""
        value = self.value(name)
        if value is None:
            return None
        if type(value) is int and value > 0:
            return [(layer + 1) % value != 0 for layer in range(num_layers)]
        if not isinstance(value, np.ndarray) or value.dtype != np.bool_ or len(value) < num_layers:
            raise self.wrong(name, f"a number of layers, or true or false for each of {num_layers} layers")
        return [bool(each) for each in value[:num_layers]]

    def text(self, name: str, default: str) -> str:
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(name, "a text")
        return value


def alike(value: Value | None) -> Value | None:
    """Of a list whose entries are all the same, that."""
    if isinstance(value, np.ndarray) and len({*value.tolist()}) == 1:
        found: Value = value.tolist()[0]
        return found
    return value
