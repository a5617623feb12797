"""What files call the tensors of a block head: DFlash, DSpark. Canonical names are ours, as in `layout`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_eagle.checkpoints.layout import LAYER_PARTS, MAPS

if TYPE_CHECKING:
    from collections.abc import Iterable

MARKOV = "markov_head.markov_w1.weight"
"""Only a DSpark head has it."""
MODULES = {
    "fc": ("fc", "encoder.fc"),
    "hidden_norm": ("hidden_norm", "encoder.output_norm_enc"),
    "norm": ("norm",),
    "embed_tokens": ("embed_tokens",),
    "lm_head": ("lm_head",),
    "markov_in": ("markov_head.markov_w1",),
    "markov_out": ("markov_head.markov_w2",),
    "markov_gate": ("markov_head.gate_proj",),
    "markov_joint": ("markov_head.joint_proj",),
    "confidence": ("confidence_head.proj",),
}
PREFIXES = ("", "model.")


def is_block_head(names: Iterable[str]) -> bool:
    """Whether these are a block head's tensors: hidden states come in through one norm of their own, and no layer has
    an auxiliary input."""
    held = {name.removeprefix("model.") for name in names}
    enters = {"fc.weight", "hidden_norm.weight"} <= held or {"encoder.fc.weight"} <= held
    return MARKOV in held or (enters and "layers.0.self_attn.q_norm.weight" in held)


def candidates(canonical: str) -> tuple[str, ...]:
    """The names that the tensor may have in a file, the usual one first."""
    if canonical in MAPS:
        return (canonical,)
    module = canonical.removesuffix(".bias")
    suffix = ".weight" if module == canonical else ".bias"
    if module.startswith("layers."):
        _, index, part = module.split(".")
        modules: tuple[str, ...] = (f"layers.{index}.{LAYER_PARTS[part]}",)
    else:
        modules = MODULES[module]
    return tuple(prefix + name + suffix for name in modules for prefix in PREFIXES)
