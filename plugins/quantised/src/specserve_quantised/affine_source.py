"""The tensors of a checkpoint whose linear maps are stored as `Affine`: one weight for the parts of each.

A subclass says which parts there are and reads them. Owns the order of inputs (`g_idx`) and which weights stay
integers.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.api import ModelError
from specserve.api.models import ALL_ROWS, StoredTensor, WeightSource, dense, expect
from specserve_quantised.affine import SCALES, in_full, is_exact, quantised

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from torch import Tensor

    from specserve.api.models import Activations, QuantisedWeight
    from specserve_quantised.affine import Affine

log = logging.getLogger(__name__)

USE_ANOTHER = "Use another checkpoint, or the unquantised one."


class StoredMap(NamedTuple):
    """What the headers say of a quantised linear map."""

    parts: tuple[str, ...]
    """Names of its tensors."""
    shape: tuple[int, int]
    """[out, in]"""
    bits: int
    group_size: int
    scales: str
    """Name of the tensor with its scales."""
    zeros: str | None
    """Name of the tensor with its zero points; None: there is none."""
    group_of: str | None = None
    """Name of the tensor with the group of each input; None: groups are `group_size` inputs in a row."""

    @property
    def num_groups(self) -> int:
        return -(-self.shape[1] // self.group_size)


class AffineSource(WeightSource, ABC):
    """`maps`: by name of the linear map. Every tensor that is no part of one is as it is in `stored`."""

    activations: Activations = "auto"
    """What quantised maps are multiplied by."""

    def __init__(self, stored: WeightSource) -> None:
        self.path, self.stored = stored.path, stored
        self.maps = {stem: self.find_map(stem) for stem in self.stems()}
        self.orders = {stem: order for stem, each in self.maps.items() if (order := self.order_of(each)) is not None}
        tensors = dict(stored.tensors)
        for stem, each in self.maps.items():
            if f"{stem}.weight" in stored.tensors and f"{stem}.weight" not in each.parts:
                raise ModelError(f"{self.path}: tensor {stem}.weight is there twice, packed and not. {USE_ANOTHER}")
            num_bytes = sum(tensors.pop(part).num_bytes for part in each.parts)
            kept = self.is_kept(stem)
            kind = (f"I{each.bits}", True) if kept else ("F32", False)
            tensors[f"{stem}.weight"] = StoredTensor(each.shape, kind[0], num_bytes, self.file_of(each), kind[1])
        self.tensors = tensors
        self.is_told = False
        """Whether the log says which maps are not kept as integers."""

    @abstractmethod
    def stems(self) -> Iterable[str]:
        """Names of the quantised linear maps."""

    @abstractmethod
    def find_map(self, stem: str) -> StoredMap:
        """What its headers say. ModelError where they do not fit each other or the settings."""

    @abstractmethod
    def read_map(self, each: StoredMap, rows: slice) -> Affine:
        """These rows of its weight."""

    def read(self, name: str, rows: slice = ALL_ROWS) -> Tensor | QuantisedWeight:
        stem = name.removesuffix(".weight")
        if (each := self.maps.get(stem)) is None or name == stem:
            return self.stored.read(name, rows)
        read = self.read_map(each, rows)
        if self.is_kept(stem):
            return quantised(read, each.group_size)._replace(activations=self.activations)
        self.tell_memory()
        neighbours = torch.arange(each.shape[1]) // each.group_size
        return in_full(read, self.orders.get(stem, neighbours))

    def is_kept(self, stem: str) -> bool:
        """Whether its weight is read as integers."""
        each = self.maps[stem]
        scales = self.stored.find(each.scales).dtype
        return stem not in self.orders and is_exact(each.bits, scales, each.zeros is not None)

    def tell_memory(self) -> None:
        """Once, when the first of them is read: names alone are asked for more often."""
        if self.is_told:
            return
        self.is_told = True
        wide = [stem for stem in self.maps if not self.is_kept(stem)]
        log.warning(
            "%s: %d of %d quantised maps, such as %s, are served in the model's dtype, which takes more memory: their "
            "groups are not of neighbouring inputs (g_idx), or float32 could not hold their numbers exactly",
            self.path, len(wide), len(self.maps), min(wide),
        )  # fmt: skip

    def order_of(self, each: StoredMap) -> Tensor | None:
        """The group of each input, [in] int64; None where groups are of neighbours."""
        if each.group_of is None:
            return None
        group_of = self.part(each.group_of).long()
        if not bool(((group_of >= 0) & (group_of < each.num_groups)).all()):
            raise ModelError(
                f"{self.path}: tensor {each.group_of} has groups from {int(group_of.min())} to {int(group_of.max())}; "
                f"allowed: 0 to {each.num_groups - 1}, as there are {each.num_groups} scales. {USE_ANOTHER}"
            )
        neighbours = torch.arange(each.shape[1]) // each.group_size
        return None if torch.equal(group_of, neighbours) else group_of

    def file_of(self, each: StoredMap) -> Path:
        return self.stored.find(each.parts[0]).file

    def part(self, name: str, rows: slice = ALL_ROWS) -> Tensor:
        """One of the tensors that hold a map."""
        if self.stored.find(name).quantised:
            raise ModelError(f"{self.path}: tensor {name}, which is a part of a quantised weight, is quantised itself.")
        return dense(self.stored.read(name, rows))


def expect_scales(source: WeightSource, name: str, shape: tuple[int, int], says: str) -> None:
    """ModelError unless it is a tensor of scales of that shape. says: what wants it."""
    expect(source.find(name), name, shape, SCALES, says)
