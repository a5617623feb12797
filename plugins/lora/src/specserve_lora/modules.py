"""The linear layers that an adapter may change, by PEFT's path, and the slice of a fused projection that each one is.

Owns the mapping between a checkpoint's module tree and fused projections; knows nothing of files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.api import AdaptableProjection

HEAD, EMBEDDING = "lm_head", "model.embed_tokens"
"""Modules of every model that adapters may target and that are not supported."""
BLOCKS = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), "self_attn"),
    **dict.fromkeys(("gate_proj", "up_proj", "down_proj"), "mlp"),
}
"""Which block of a layer holds each part in all supported families."""


class Module(NamedTuple):
    """One linear layer of the checkpoint: outputs `outs` of a projection."""

    path: str
    """As in `model.named_modules()` of transformers."""
    projection: str
    outs: slice
    in_features: int
    out_features: int


def modules_of(projections: Mapping[str, AdaptableProjection]) -> dict[str, Module]:
    """By path, in the model's order. Parts of libraries' models have their paths as names."""
    found = {}
    for name, projection in projections.items():
        if name == HEAD:
            continue
        layer = name.rpartition(".")[0]
        whole = projection.whole  # an adapter is for the whole model, whatever this process has of it
        for part, outs in whole.parts.items():
            path = part if "." in part else f"model.{layer}.{BLOCKS[part]}.{part}"
            found[path] = Module(path, name, outs, whole.in_features, outs.stop - outs.start)
    return found
