"""From a directory to an adapter's weights, checked against its own configuration and against the model.

Owns the tensors' names, the scale, the dtype and the version; knows nothing of what is loaded or in use. Letters:
r rank.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.protocols import LowRankPart
from specserve_lora.adapter_dir import CONFIG, WEIGHTS
from specserve_lora.config import parse_config
from specserve_lora.errors import AdapterError
from specserve_lora.safetensors_file import TensorFile
from specserve_lora.targets import targets_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from specserve.protocols import AdapterWeights
    from specserve_lora.adapter_dir import AdapterDir
    from specserve_lora.modules import Module
    from specserve_lora.targets import Target

MAX_CONFIG_BYTES = 4 * 2**20
PREFIX = "base_model.model."
VERSION_DIGITS = 16


class Adapter(NamedTuple):
    """`version` is a hash of both files, `num_bytes` the size of `weights`."""

    version: str
    weights: AdapterWeights
    num_bytes: int


@dataclass(frozen=True, slots=True)
class AdapterReader:
    """Reads adapters for one model."""

    modules: Mapping[str, Module]
    dtype: torch.dtype
    device: torch.device
    max_rank: int
    max_bytes: int

    def read(self, directory: AdapterDir) -> Adapter:
        """Everything that can be wrong is found before the tensors are read, but for values. Raises AdapterError."""
        where, content = directory.source(CONFIG), read_config(directory)
        targets = targets_of(parse_config(content, where), self.modules, self.max_rank, where)
        num_bytes = size_of(targets, self.dtype)
        if num_bytes > self.max_bytes:
            raise AdapterError(
                f"{directory.label[:300]} needs {num_bytes} bytes, and lora.max_memory allows {self.max_bytes} for all "
                "adapters. Raise lora.max_memory.",
                param="lora_path",
                code="max_memory",
            )
        with directory.open(WEIGHTS) as opened:
            file = TensorFile(opened, directory.source(WEIGHTS))
            check_tensors(file, targets)
            data = file.read()
        digest = hashlib.sha256(len(content).to_bytes(8, "little") + content + file.header)
        digest.update(data)
        return Adapter(digest.hexdigest()[:VERSION_DIGITS], self.weights(file, data, targets), num_bytes)

    def weights(self, file: TensorFile, data: bytearray, targets: Sequence[Target]) -> AdapterWeights:
        parts: dict[str, list[LowRankPart]] = {}
        for module, _, scale in targets:
            down, up = names(module)
            part = LowRankPart(
                self.converted(file, down, data, 1.0), self.converted(file, up, data, scale), module.outs
            )
            parts.setdefault(module.projection, []).append(part)
        return {projection: tuple(own) for projection, own in parts.items()}

    def converted(self, file: TensorFile, name: str, data: bytearray, scale: float) -> Tensor:
        """A tensor of its own, scaled in float32, in the model's dtype."""
        tensor = file.tensor(name, data).float() * scale
        tensor = tensor.to(self.device, self.dtype)
        if not bool(torch.isfinite(tensor).all()):
            raise AdapterError(
                f"{file.where}: tensor {name} has values that are not finite as {self.dtype} times its scale "
                f"({scale:g}). The adapter is broken, or needs another --dtype.",
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
            f"{directory.source(CONFIG)} is larger than {MAX_CONFIG_BYTES} bytes; that is no configuration.",
            param="lora_path",
        )
    return content


def names(module: Module) -> tuple[str, str]:
    """Of down [r, in] and up [out, r] in the file."""
    return f"{PREFIX}{module.path}.lora_A.weight", f"{PREFIX}{module.path}.lora_B.weight"


def size_of(targets: Sequence[Target], dtype: torch.dtype) -> int:
    return sum(t.rank * (t.module.in_features + t.module.out_features) for t in targets) * dtype.itemsize


def check_tensors(file: TensorFile, targets: Sequence[Target]) -> None:
    """Every target's pair is there in the shape that model and configuration say, and nothing else is."""
    expected: dict[str, list[int]] = {}
    for module, rank, _ in targets:
        down, up = names(module)
        expected |= {down: [rank, module.in_features], up: [module.out_features, rank]}
    for name, shape in expected.items():
        entry = file.entries.get(name)
        if entry is None:
            raise AdapterError(
                f"{file.where}: tensor {name} is missing, though adapter_config.json targets its module. The two files "
                "are not of the same adapter, or it was trained for another model.",
                param="lora_path",
            )
        if entry.shape != shape:
            raise AdapterError(
                f"{file.where}: tensor {name} has shape {entry.shape}; rank and model say {shape}. The two files are "
                "not of the same adapter, or it was trained for another model.",
                param="lora_path",
            )
    if extra := sorted(file.entries.keys() - expected.keys()):
        raise AdapterError(
            f"{file.where} has {len(extra)} tensors that cannot be served, the first is {extra[0][:200]}: "
            f"{why_not(extra[0])}.",
            param="lora_path",
        )


def why_not(name: str) -> str:
    for mark, reason in (
        ("lora_embedding_", "LoRA of embeddings is not served"),
        ("lora_magnitude_vector", "DoRA is not served"),
        ("lm_head.", "adapters of lm_head are not served"),
        (".bias", "biases are not served"),
    ):
        if mark in name:
            return reason
    return "adapter_config.json targets no such module of this model"
