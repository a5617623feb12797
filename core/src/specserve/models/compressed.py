"""Checkpoints whose linear maps have weights of 8 bits, in the format of compressed-tensors: presets W8A16 and W8A8.

Owns which settings of `quantization_config` are read, the names and shapes of their tensors, and how integers are
packed; knows nothing about kernels. A format that is not read is refused by name, never ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
import torch

from specserve.errors import ModelError
from specserve.protocols.quantised import Activations, QuantisedWeight
from specserve.wrong_values import convert

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.models.weights import Checkpoint

FORMATS = ("pack-quantized", "int-quantized")
ALLOWED = (
    "symmetric integers of 8 bits: per channel or group of inputs with activations that are not quantised (W8A16), or "
    "per channel with symmetric activations of 8 bits, dynamic, per token (W8A8)"
)
OTHERWISE = "Use such a checkpoint, or the unquantised one."
UNREAD = ("weight_zero_point", "weight_g_idx")
PER_WORD = 4
"""Integers in one int32 of the packed format."""


class QuantizationArgs(msgspec.Struct, frozen=True, kw_only=True):
    """What a group of `config_groups` says of its weights, and of the inputs of its maps."""

    num_bits: int
    type: str = "int"
    symmetric: bool = True
    strategy: str | None = None

    def unreadable(self, what: str) -> str:
        """What is not read, of weights and activations alike; empty where all is."""
        if self.num_bits != 8 or self.type != "int":
            return f"{what} of {self.num_bits} bits, type {self.type!r}"
        return "" if self.symmetric else f"{what} that are not symmetric"


class WeightArgs(QuantizationArgs, frozen=True, kw_only=True):
    group_size: int | None = None
    dynamic: bool = False


class ActivationArgs(QuantizationArgs, frozen=True, kw_only=True):
    dynamic: bool | str = False


class ConfigGroup(msgspec.Struct, frozen=True, kw_only=True):
    weights: WeightArgs
    input_activations: ActivationArgs | None = None
    output_activations: dict[str, object] | None = None
    format: str | None = None


class QuantizationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that decide; others are ignored. Which maps are quantised is read from the tensors' names."""

    config_groups: dict[str, ConfigGroup]
    format: str
    kv_cache_scheme: object = None
    sparsity_config: dict[str, object] | None = None
    transform_config: dict[str, object] | None = None


class Compression(msgspec.Struct, frozen=True):
    """How the checkpoint's quantised maps are stored."""

    format: Literal["pack-quantized", "int-quantized"]
    group_sizes: tuple[int | None, ...]
    """Inputs that may share a scale; None for all of an output's."""
    activations: Activations = "auto"
    """What quantised maps are multiplied by."""

    def stored(self, names: frozenset[str], stem: str) -> bool:
        """Is the weight of the linear map `stem` quantised?"""
        return f"{stem}.weight_scale" in names

    def tensors(
        self, checkpoint: Checkpoint, stem: str, shape: tuple[int, ...]
    ) -> dict[str, tuple[tuple[int, ...], tuple[str, ...]]]:
        """Shape and types of every tensor of a quantised map of shape [out, in]."""
        outs, ins = shape
        if unread := [name for name in UNREAD if f"{stem}.{name}" in checkpoint.names]:
            raise ModelError(
                f"{checkpoint.path}: tensor {stem}.{unread[0]} changes what weights mean and is not read; what is read "
                f"is {ALLOWED}. {OTHERWISE}"
            )
        scale = checkpoint.shape(f"{stem}.weight_scale")
        found = {f"{stem}.weight_scale": ((outs, self.groups(checkpoint, stem, ins, scale)), ("F32", "BF16", "F16"))}
        if self.format == "int-quantized":
            return found | {f"{stem}.weight": (shape, ("I8",))}
        return found | {
            f"{stem}.weight_packed": ((outs, -(-ins // PER_WORD)), ("I32",)),
            f"{stem}.weight_shape": ((2,), ("I64", "I32")),
        }

    def groups(self, checkpoint: Checkpoint, stem: str, ins: int, scale: tuple[int, ...]) -> int:
        """How many scales an output has: that of the file, if one of the group sizes gives it."""
        allowed = sorted({-(-ins // (size or ins)) for size in self.group_sizes})
        if len(scale) == 2 and scale[1] in allowed:
            return scale[1]
        raise ModelError(
            f"{checkpoint.path}: tensor {stem}.weight_scale has shape {list(scale)}; with {ins} inputs config.json "
            f"allows {' or '.join(map(str, allowed))} scales for each output. The weights and config.json are not of "
            "the same model."
        )

    def read(self, checkpoint: Checkpoint, stem: str, ins: int, dtype: torch.dtype) -> QuantisedWeight:
        scales = checkpoint.take(f"{stem}.weight_scale").float()
        size = next(size or ins for size in self.group_sizes if -(-ins // (size or ins)) == scales.shape[1])
        if self.format == "int-quantized":
            return QuantisedWeight(checkpoint.take(f"{stem}.weight"), scales, size, dtype, self.activations)
        checkpoint.take(f"{stem}.weight_shape")
        words = checkpoint.take(f"{stem}.weight_packed").contiguous()
        integers = (words.view(torch.uint8)[:, :ins] ^ 0x80).view(torch.int8)  # stored with 128 added
        return QuantisedWeight(integers.contiguous(), scales, size, dtype, self.activations)


def read_compression(raw: Mapping[str, object], where: str) -> Compression:
    """raw: `quantization_config` of config.json. ModelError where it is of another kind."""
    method = raw.get("quant_method", "unknown")
    if method != "compressed-tensors":
        raise ModelError(
            f"{where}: quantised weights: quant_method must be compressed-tensors, with {ALLOWED}; got {method!r}. "
            f"{OTHERWISE}"
        )
    config = convert(
        dict(raw),
        QuantizationConfig,
        lambda wrong: ModelError(f"{where}: quantization_config: {wrong} Correct the file or download it again."),
    )
    sizes: list[int | None] = []
    for name, group in config.config_groups.items():
        if problem := unreadable(config, group):
            raise ModelError(f"{where}: quantization_config, {name}: {problem}; what is read is {ALLOWED}. {OTHERWISE}")
        sizes.append(group.weights.group_size if group.weights.strategy == "group" else None)
    if not sizes:
        raise ModelError(f"{where}: quantization_config has no config_groups. Correct the file or download it again.")
    rounded = {group.input_activations is not None for group in config.config_groups.values()}
    if len(rounded) > 1:
        raise ModelError(
            f"{where}: quantization_config: some config_groups quantise activations and some do not; what is read is "
            f"{ALLOWED}, the same in all. {OTHERWISE}"
        )
    # format: one of FORMATS by now
    return Compression(config.format, tuple(dict.fromkeys(sizes)), "int8" if any(rounded) else "auto")  # type: ignore[arg-type]


def unreadable(config: QuantizationConfig, group: ConfigGroup) -> str:
    """What is not read in it; empty where all is."""
    weights, kind = group.weights, group.format or config.format
    if kind not in FORMATS or kind != config.format:
        return f"format {kind!r}"
    if problem := weights.unreadable("weights"):
        return problem
    if weights.dynamic:
        return "weights that are quantised dynamically"
    if weights.strategy not in ("channel", "group") or (weights.strategy == "group" and (weights.group_size or 0) < 1):
        return f"strategy {weights.strategy!r} with groups of {weights.group_size}"
    if group.output_activations:
        return "quantised outputs"
    if group.input_activations and (problem := unreadable_activations(group.input_activations, weights)):
        return problem
    if config.kv_cache_scheme:
        return f"kv_cache_scheme {config.kv_cache_scheme}"
    if config.sparsity_config and config.sparsity_config.get("format") != "dense":
        return f"sparsity_config {config.sparsity_config}"
    return f"transform_config {config.transform_config}" if config.transform_config else ""


def unreadable_activations(inputs: ActivationArgs, weights: WeightArgs) -> str:
    if problem := inputs.unreadable("activations"):
        return problem
    if inputs.dynamic is not True or inputs.strategy != "token":
        return f"activations with dynamic = {inputs.dynamic!r} and strategy {inputs.strategy!r}"
    return (
        "" if weights.strategy == "channel" else f"quantised activations with weights of strategy {weights.strategy!r}"
    )
