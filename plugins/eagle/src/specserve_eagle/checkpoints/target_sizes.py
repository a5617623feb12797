"""What the files of a head are compared with: a target that is served, or its numbers alone."""

from __future__ import annotations

from typing import Protocol


class TargetSizes(Protocol):
    """`ServedModel` and `ModelConfig` have them."""

    @property
    def family(self) -> str: ...

    @property
    def num_layers(self) -> int: ...

    @property
    def hidden_size(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...
