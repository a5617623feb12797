"""Reads an adapter's weights from its directory, checked against its own configuration and against the model.

Owns the tensors' names, the scaling, the dtype and the version; knows nothing of what is loaded or in use. Letters:
r rank.
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
from specserve_lora.safetensors_file import SafetensorsFile
from specserve_lora.targets import targets_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from specserve.api import AdapterWeights
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

    @property
    def rank(self) -> int:
        """The highest of its parts."""
        return max((len(part.down) for parts in self.weights.values() for part in parts), default=0)


@dataclass(frozen=True, slots=True)
class AdapterReader:
    """Reads adapters for one model."""

    modules: Mapping[str, Module]
    dtype: torch.dtype
    device: torch.device
    max_rank: int
    max_bytes: int

    def read(self, directory: AdapterDir) -> Adapter:
        """All checks but those of values are done before the tensors are read. Raises AdapterError."""
        source, content = directory.source(CONFIG), read_config(directory)
        targets = targets_of(parse_config(content, source), self.modules, self.max_rank, source)
        num_bytes = num_bytes_of(targets, self.dtype)
        if num_bytes > self.max_bytes:
            raise AdapterError(
                f"{directory.label[:300]} needs {num_bytes} bytes, and lora.max_memory allows {self.max_bytes} for all "
                "adapters. Raise lora.max_memory.",
                param="lora_path",
                code="max_memory",
            )
        with directory.open(WEIGHTS) as opened:
            file = SafetensorsFile(opened, directory.source(WEIGHTS))
            check_tensors(file, targets)
            data = file.read()
        digest = hashlib.sha256(len(content).to_bytes(8, "little") + content + file.header)
        digest.update(data)
        return Adapter(digest.hexdigest()[:VERSION_DIGITS], self.weights(file, data, targets), num_bytes)

    def weights(self, file: SafetensorsFile, data: bytearray, targets: Sequence[Target]) -> AdapterWeights:
        parts: dict[str, list[LowRankPart]] = {}
        for module, _, scaling in targets:
            down, up = tensor_names(module)
            part = LowRankPart(self.scaled(file, down, data, 1.0), self.scaled(file, up, data, scaling), module.outs)
            parts.setdefault(module.projection, []).append(part)
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


def tensor_names(module: Module) -> tuple[str, str]:
    """Names in the file of down [r, in] and up [out, r]."""
    return f"{PREFIX}{module.path}.lora_A.weight", f"{PREFIX}{module.path}.lora_B.weight"


def num_bytes_of(targets: Sequence[Target], dtype: torch.dtype) -> int:
    return sum(t.rank * (t.module.in_features + t.module.out_features) for t in targets) * dtype.itemsize


def check_tensors(file: SafetensorsFile, targets: Sequence[Target]) -> None:
    """The file holds exactly the targets' pairs, in the shapes that model and configuration require."""
    expected: dict[str, list[int]] = {}
    for module, rank, _ in targets:
        down, up = tensor_names(module)
        expected |= {down: [rank, module.in_features], up: [module.out_features, rank]}
    for name, shape in expected.items():
        entry = file.entries.get(name)
        if entry is None:
            raise AdapterError(
                f"{file.source}: tensor {name} is missing, though adapter_config.json targets its module. The two "
                "files are not of the same adapter, or it was trained for another model.",
                param="lora_path",
            )
        if entry.shape != shape:
            raise AdapterError(
                f"{file.source}: tensor {name} has shape {entry.shape}; rank and model say {shape}. The two files are "
                "not of the same adapter, or it was trained for another model.",
                param="lora_path",
            )
    if extra := sorted(file.entries.keys() - expected.keys()):
        raise AdapterError(
            f"{file.source} has {len(extra)} tensors that cannot be served, the first is {extra[0][:200]}: "
            f"{reason_unsupported(extra[0])}.",
            param="lora_path",
        )


def reason_unsupported(name: str) -> str:
    for infix, reason in (
        ("lora_embedding_", "LoRA of embeddings is not supported"),
        ("lora_magnitude_vector", "DoRA is not supported"),
        ("lm_head.", "adapters of lm_head are not supported"),
        (".bias", "biases are not supported"),
    ):
        if infix in name:
            return reason
    return "adapter_config.json targets no such module of this model"
