"""Reads an adapter's weights from its directory, checked against its own configuration and against the model.

Owns the scaling, the dtype, the version, and how the experts of one pair of tensors are told apart; knows nothing of
what is loaded or in use. Letters: r rank, E experts.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.api import LowRankPart
from specserve_lora.adapter_dir import CONFIG, WEIGHTS
from specserve_lora.config import parse_config
from specserve_lora.errors import AdapterError
from specserve_lora.file_targets import check_tensors, targets_in, tensor_names
from specserve_lora.safetensors_file import SafetensorsFile
from specserve_lora.targets import targets_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from specserve.api import AdapterWeights
    from specserve_lora.adapter_dir import AdapterDir
    from specserve_lora.modules import Modules
    from specserve_lora.targets import Target

MAX_CONFIG_BYTES = 4 * 2**20
VERSION_DIGITS = 16


class Adapter(NamedTuple):
    """`version` is a hash of both files, `num_bytes` the size of `weights`."""

    version: str
    weights: AdapterWeights
    num_bytes: int

    @property
    def rank(self) -> int:
        """The highest of its parts."""
        return max((len(part.down) for parts in self.weights.values() for part in parts), default=0)


@dataclass(frozen=True, slots=True)
class AdapterReader:
    """Reads adapters for one model."""

    modules: Modules
    dtype: torch.dtype
    device: torch.device
    max_rank: int
    max_bytes: int
    rank_limit: str = "lora.max_rank allows"
    """What says `max_rank`, in error messages."""

    def read(self, directory: AdapterDir) -> Adapter:
        """All checks but those of values are done before the tensors are read. Raises AdapterError."""
        source, content = directory.source(CONFIG), read_config(directory)
        candidates = targets_of(parse_config(content, source), self.modules, source)
        with directory.open(WEIGHTS) as opened:
            file = SafetensorsFile(opened, directory.source(WEIGHTS))
            targets = targets_in(file, candidates)
            self.check_ranks(targets, source)
            num_bytes = self.check_memory(targets, directory)
            check_tensors(file, targets)
            data = file.read()
        digest = hashlib.sha256(len(content).to_bytes(8, "little") + content + file.header)
        digest.update(data)
        return Adapter(digest.hexdigest()[:VERSION_DIGITS], self.weights(file, data, targets), num_bytes)

    def check_ranks(self, targets: Sequence[Target], source: str) -> None:
        widest = max(targets, key=lambda target: target.rank)
        if widest.rank > self.max_rank:
            raise AdapterError(
                f"{source}: {widest.stem} has rank {widest.rank}, and {self.rank_limit} {self.max_rank}.",
                param="lora_path",
                code="max_rank",
            )

    def check_memory(self, targets: Sequence[Target], directory: AdapterDir) -> int:
        """How many bytes the adapter has in memory."""
        num_bytes = num_bytes_of(targets, self.dtype)
        if num_bytes > self.max_bytes:
            raise AdapterError(
                f"{directory.label[:300]} needs {num_bytes} bytes, and lora.max_memory allows {self.max_bytes} for all "
                "adapters. Raise lora.max_memory.",
                param="lora_path",
                code="max_memory",
            )
        return num_bytes

    def weights(self, file: SafetensorsFile, data: bytearray, targets: Sequence[Target]) -> AdapterWeights:
        parts: dict[str, list[LowRankPart]] = {}
        for target in targets:
            names = tensor_names(target)
            down, up = (self.scaled(file, name, data, s) for name, s in zip(names, (1.0, target.scaling), strict=True))
            for place, part in zip(target.module.places, parts_of(target, down, up), strict=True):
                parts.setdefault(place.projection, []).append(LowRankPart(*part, place.outs))
        return {projection: tuple(own) for projection, own in parts.items()}

    def scaled(self, file: SafetensorsFile, name: str, data: bytearray, scaling: float) -> Tensor:
        """A copy of the tensor, scaled in float32, in the model's dtype."""
        tensor = file.tensor(name, data).float() * scaling
        tensor = tensor.to(self.device, self.dtype)
        if not bool(torch.isfinite(tensor).all()):
            raise AdapterError(
                f"{file.source}: tensor {name} has values that are not finite as {self.dtype} times its scaling "
                f"({scaling:g}). The adapter is broken, or needs another --dtype.",
                param="lora_path",
            )
        return tensor


def read_config(directory: AdapterDir) -> bytes:
    with directory.open(CONFIG) as file:
        try:
            content = file.read(MAX_CONFIG_BYTES + 1)
        except OSError as error:
            raise AdapterError(
                f"{directory.source(CONFIG)} cannot be read: {error.strerror}.", param="lora_path"
            ) from None
    if len(content) > MAX_CONFIG_BYTES:
        raise AdapterError(
            f"{directory.source(CONFIG)} is larger than {MAX_CONFIG_BYTES} bytes.",
            param="lora_path",
        )
    return content


def num_bytes_of(targets: Sequence[Target], dtype: torch.dtype) -> int:
    sizes = (t.rank * (t.module.in_features + t.module.out_features) * len(t.module.places) for t in targets)
    return sum(sizes) * dtype.itemsize


def parts_of(target: Target, down: Tensor, up: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """down: [E * r, in], up: [out, r * E] -> of every expert, [r, in] and [out, r], with memory of their own: rows of
    down are in order of experts first, columns of up of ranks first."""
    count, rank = len(target.module.places), target.rank
    if (count, target.module.places[0].turns) == (1, 1):
        yield down, up
        return
    downs, ups = down.view(count, rank, -1), up.view(-1, rank, count)
    for expert, place in enumerate(target.module.places):
        by_turns = [ups[turn :: place.turns, :, expert] for turn in range(place.turns)]
        yield downs[expert].clone(), torch.cat(by_turns)
