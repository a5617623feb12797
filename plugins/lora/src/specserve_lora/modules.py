"""What an adapter may change, by PEFT's names, and which outputs of the model's projections each name stands for.

Owns the mapping between module trees of checkpoints and fused projections; knows nothing of files. A linear map may
have several names: ours, that of the checkpoint, and that of a parameter which holds the maps of all experts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve_lora.stored_names import (
    Place,
    is_of_library,
    named_by_checkpoint,
    named_by_class,
    named_by_library,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.api import AdaptableProjection

HEAD, EMBEDDING = "lm_head", "model.embed_tokens"
"""Modules of every model that adapters may target and that are not supported."""
BLOCKS = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj", "g_proj"), "self_attn"),
    **dict.fromkeys(("gate_proj", "up_proj", "down_proj", "gate", "shared_expert_gate"), "mlp"),
}
"""Which block of a layer holds each part in all supported families."""
ROUTER, EXPERT, SHARED_EXPERT = "router", "experts", "shared_expert"
"""What follows the layer in the names of projections that only layers with experts have."""


class Module(NamedTuple):
    """A linear map; or that of every expert of a layer, in one parameter."""

    path: str
    """As in `model.named_modules()` of transformers."""
    parameter: str
    """Which of the module's parameters it is."""
    places: tuple[Place, ...]
    """One; or one of every expert, in order."""
    in_features: int
    out_features: int

    @property
    def key(self) -> str:
        """As in `model.named_parameters()`."""
        return f"{self.path}.{self.parameter}"


class Modules(NamedTuple):
    """What adapters may name, in the model's order."""

    linear: Mapping[str, Module]
    """By path: modules that are linear maps, which `target_modules` may name."""
    parameters: Mapping[str, Module]
    """By key: what `target_parameters` may name, those of linear maps among them."""


def modules_of(projections: Mapping[str, AdaptableProjection]) -> Modules:
    """Of the model's projections, by all their names."""
    found = [module_of(path, [place], projections) for path, place in own_names(projections).items()]
    linear, stacks = named_by_checkpoint(projections)
    found += [module_of(path, places, projections) for path, places in linear.items()]
    others = stacks | named_by_class(projections) | named_by_library(projections)
    by_class = [module_of(path, places, projections, parameter) for (path, parameter), places in others.items()]
    return Modules({m.path: m for m in found}, {m.key: m for m in (*found, *by_class)})


def own_names(projections: Mapping[str, AdaptableProjection]) -> dict[str, Place]:
    """Of every linear map, as the checkpoints of Llama have them, and those of Qwen3 where there are experts. Parts of
    libraries' models have their paths as names."""
    found: dict[str, Place] = {}
    for name, projection in projections.items():
        if name == HEAD:
            continue
        for part, outs in projection.whole.parts.items():
            if is_of_library(part):
                if part not in projection.whole.stored:
                    found[part] = Place(name, outs)
                continue
            if part in BLOCKS:  # others have the checkpoint's name alone
                layers, layer, *inside, _ = name.split(".")
                found[".".join(("model", layers, layer, BLOCKS[part], *inside, part))] = Place(name, outs)
    return found


def module_of(
    path: str,
    places: list[Place],
    projections: Mapping[str, AdaptableProjection],
    parameter: str = "weight",
) -> Module:
    """An adapter is for the whole model, whatever this process has of it."""
    name, outs, _ = places[0]
    return Module(path, parameter, tuple(places), projections[name].whole.in_features, outs.stop - outs.start)
