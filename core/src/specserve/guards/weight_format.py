"""A plugin's format of weights, made safe to ask: where it raises or answers something else, start-up says whose fault
that is. Knows nothing of what the answers mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import torch

from specserve.errors import SpecserveError
from specserve.guards.asking import Asked
from specserve.models.weight_format import (
    ALL_ROWS,
    QuantMethod,
    StoredTensor,
    WeightFiles,
    WeightFormat,
    WeightSource,
)
from specserve.protocols.quantised import QuantisedWeight

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor


PASSES = (SpecserveError, OSError)


def guarded(owner: str, made: WeightFormat) -> WeightFormat:
    return GuardedQuantMethod(owner, made) if isinstance(made, QuantMethod) else GuardedFiles(owner, made)  # type: ignore[arg-type]


class GuardedFiles(WeightFiles):
    """Its attributes are the format's own."""

    def __init__(self, owner: str, made: WeightFiles) -> None:
        self.name, self.patterns, self.made = made.name, made.patterns, made
        self.asked = Asked(owner, f"format {made.name}", WeightFiles, PASSES)

    def files(self, path: Path) -> Collection[str]:
        return self.asked.answer("files", lambda answer: isinstance(answer, Collection), self.made.files, path)

    def open(self, path: Path) -> WeightSource:
        return GuardedSource(self.asked.answer("its tensors", is_source, self.made.open, path), self.asked)


class GuardedQuantMethod(QuantMethod):
    """Its attributes are the method's own."""

    def __init__(self, owner: str, made: QuantMethod) -> None:
        self.name, self.reads, self.made = made.name, made.reads, made
        self.asked = Asked(owner, f"format {made.name}", QuantMethod, PASSES)

    def open(self, stored: WeightSource, settings: Mapping[str, Any], where: str) -> WeightSource:
        source = self.asked.answer("its tensors", is_source, self.made.open, stored, settings, where)
        return GuardedSource(source, self.asked)


class GuardedSource(WeightSource):
    def __init__(self, source: WeightSource, asked: Asked) -> None:
        self.path, self.tensors, self.source = source.path, source.tensors, source
        self.asked = asked._replace(base=WeightSource)

    def read(self, name: str, rows: slice = ALL_ROWS) -> Tensor | QuantisedWeight:
        stored = self.tensors[name]
        num_rows = len(range(*rows.indices(stored.shape[0]))) if stored.shape else 0
        shape = (num_rows, *stored.shape[1:]) if stored.shape else ()

        def is_right(answer: object) -> bool:
            kind = QuantisedWeight if stored.quantised else torch.Tensor
            return isinstance(answer, kind) and tuple(answer.shape) == shape

        return self.asked.answer(f"tensor {name} of shape {list(shape)}", is_right, self.source.read, name, rows)


def is_source(answer: object) -> bool:
    if not isinstance(answer, WeightSource):
        return False
    tensors = getattr(answer, "tensors", None)
    return isinstance(tensors, Mapping) and all(isinstance(each, StoredTensor) for each in tensors.values())
