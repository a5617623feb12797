"""Which settings of `quantization_config` are read, of checkpoints that compressed-tensors wrote: W4A16, W8A16, W8A8.

What is not read is refused by name, never ignored. Knows nothing about tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from specserve.api import ModelError
from specserve.api.files import convert

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.api.models import Activations

PLAIN = "int-quantized"
FORMATS = ("pack-quantized", PLAIN)
ALLOWED = (
    "integers of 4 or 8 bits, per channel or group of inputs, with activations that are not quantised (W4A16, W8A16), "
    "or symmetric ones of 8 bits per channel with symmetric activations of 8 bits, dynamic, per token (W8A8)"
)
ORDERED = ("group", "dynamic", True)
"""Values of `actorder` with which groups are not of neighbouring inputs."""
OTHERWISE = "Use such a checkpoint, or the unquantised one."


class Scheme(NamedTuple):
    """How a map may be quantised."""

    bits: int
    group_size: int | None
    """Inputs that share a scale; None for all of an output's."""
    symmetric: bool
    ordered: bool = False
    """Whether the group of each input is stored."""


class Layout(NamedTuple):
    """How a checkpoint's quantised maps are stored."""

    format: str
    """One of FORMATS."""
    schemes: tuple[Scheme, ...]
    """Each map has one of these: its tensors say which."""
    activations: Activations
    """What quantised maps are multiplied by."""


class QuantizationArgs(msgspec.Struct, frozen=True, kw_only=True):
    """What a group of `config_groups` says of its weights, and of the inputs of its maps."""

    num_bits: int
    type: str = "int"
    symmetric: bool = True
    strategy: str | None = None

    def unreadable(self, what: str, allowed: tuple[int, ...] = (8,), *, zeros: bool = False) -> str:
        """The settings that are not read, for weights and activations alike; empty if all are. allowed: numbers of
        bits; zeros: whether zero points are read."""
        if self.num_bits not in allowed or self.type != "int":
            return f"{what} of {self.num_bits} bits, type {self.type!r}"
        return "" if self.symmetric or zeros else f"{what} that are not symmetric"


class WeightArgs(QuantizationArgs, frozen=True, kw_only=True):
    group_size: int | None = None
    dynamic: bool = False
    actorder: str | bool | None = None

    @property
    def scheme(self) -> Scheme:
        if self.strategy != "group":
            return Scheme(self.num_bits, None, self.symmetric)
        return Scheme(self.num_bits, self.group_size, self.symmetric, self.actorder in ORDERED)


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


def read_layout(settings: Mapping[str, Any], where: str) -> Layout:
    """ModelError for what is not read."""
    config = convert(
        dict(settings),
        QuantizationConfig,
        lambda wrong: ModelError(f"{where}: quantization_config: {wrong} Correct the file or download it again."),
    )
    schemes: list[Scheme] = []
    for name, group in config.config_groups.items():
        if problem := unreadable(config, group):
            raise ModelError(f"{where}: quantization_config, {name}: {problem}; what is read is {ALLOWED}. {OTHERWISE}")
        schemes.append(group.weights.scheme)
    if not schemes:
        raise ModelError(f"{where}: quantization_config has no config_groups. Correct the file or download it again.")
    rounded = {group.input_activations is not None for group in config.config_groups.values()}
    if len(rounded) > 1:
        raise ModelError(
            f"{where}: quantization_config: some config_groups quantise activations and some do not; what is read is "
            f"{ALLOWED}, the same in all. {OTHERWISE}"
        )
    return Layout(config.format, tuple(dict.fromkeys(schemes)), "int8" if any(rounded) else "auto")


def unreadable(config: QuantizationConfig, group: ConfigGroup) -> str:
    """The settings in it that are not read; empty if all are."""
    weights, kind = group.weights, group.format or config.format
    if kind not in FORMATS or kind != config.format:
        return f"format {kind!r}"
    packed = kind != PLAIN
    if problem := weights.unreadable("weights", (4, 8) if packed else (8,), zeros=packed):
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
    if weights.num_bits != 8 or not weights.symmetric:
        return (
            f"quantised activations with {'' if weights.symmetric else 'asymmetric '}weights of {weights.num_bits} bits"
        )
    return (
        "" if weights.strategy == "channel" else f"quantised activations with weights of strategy {weights.strategy!r}"
    )
