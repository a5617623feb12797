"""The keys of a GGUF file that say how text is read and written, each with its type checked.

Knows nothing about tokenizers. Everything that is wrong is a ModelError that names the file and the key.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from specserve.api import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_SHOWN = 60
"""Characters of a value, in an error message."""
ANOTHER_TOKENIZER = "Download the file again, or pass --tokenizer with a directory that has the model's tokenizer.json."


@dataclass(frozen=True, slots=True)
class TextKeys:
    """Values by key; each method answers None where the file has no such key."""

    file: str
    """How error messages name the file."""
    values: Mapping[str, object]

    def text(self, key: str) -> str | None:
        value = self.value(key)
        if value is None or isinstance(value, str):
            return value
        raise self.wrong(key, "be a string")

    def flag(self, key: str) -> bool | None:
        value = self.value(key)
        if value is None or isinstance(value, bool):
            return value
        raise self.wrong(key, "be true or false")

    def integer(self, key: str) -> int | None:
        value = self.value(key)
        if value is None or type(value) is int:
            return value
        raise self.wrong(key, "be an integer")

    def number(self, key: str) -> float | None:
        """Neither infinite nor NaN."""
        value = self.value(key)
        if value is None:
            return None
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            return value
        raise self.wrong(key, "be a finite number")

    def texts(self, key: str) -> list[str] | None:
        values = self.array(key, "a list of strings")
        if values is None or all(isinstance(value, str) for value in values):
            return values
        raise self.wrong(key, "be a list of strings")

    def integers(self, key: str) -> list[int] | None:
        values = self.array(key, "a list of integers")
        if values is None or all(type(value) is int for value in values):
            return values
        raise self.wrong(key, "be a list of integers")

    def numbers(self, key: str) -> list[float] | None:
        """None of them infinite or NaN."""
        values = self.array(key, "a list of numbers")
        if values is None or all(type(value) in (int, float) and math.isfinite(value) for value in values):
            return values
        raise self.wrong(key, "be a list of finite numbers")

    def array(self, key: str, kind: str) -> list[Any] | None:
        value = self.value(key)
        if value is None or isinstance(value, list):
            return value
        raise self.wrong(key, f"be {kind}")

    def value(self, key: str) -> object:
        """Numbers and arrays of numpy as those of Python."""
        value = self.values.get(key)
        return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value

    def wrong(self, key: str, must: str) -> ModelError:
        return ModelError(f"{self.file}: {key} must {must}; got {shown(self.value(key))}. {ANOTHER_TOKENIZER}")

    def broken(self, what: str) -> ModelError:
        """`what` names the key."""
        return ModelError(f"{self.file}: {what}. {ANOTHER_TOKENIZER}")


def shown(value: object) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}, which begins with {cut(value[0])}" if value else "an empty list"
    return cut(value)


def cut(value: object) -> str:
    text = repr(value[:MAX_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= MAX_SHOWN + 2 else f"{text[:MAX_SHOWN]}..."
