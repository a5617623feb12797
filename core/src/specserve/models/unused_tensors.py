"""Tensors of a checkpoint that nothing reads: harmless, reported by name, or refused.

Owns the line between them: what stands within a module that is served would change its arithmetic and is refused,
unless its numbers add nothing; what stands beside the served modules is reported. Reads the data of biases only.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from specserve.errors import ModelError
from specserve.models.quantised import dense
from specserve.models.text_part import DRAFTS
from specserve.models.weight_format import FLOATS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from specserve.models.checkpoint import Checkpoint

log = logging.getLogger(__name__)

BUFFERS = (".rotary_emb.inv_freq", ".rotary_emb.cos_cached", ".rotary_emb.sin_cached")
"""What old exporters write beside the weights; it holds nothing new."""
HEAD = "lm_head.weight"
"""Unread where it is the embedding: another head would be read."""
CACHE_SCALES = (".k_scale", ".v_scale", ".q_scale", ".kv_scale", ".prob_scale")
"""Scales of a cache of 8 bits; ours has its own."""
DRAFTING_LAYER = "eh_proj.weight"
"""What no layer has but one that drafts."""
LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
NAMED = 5
"""Names in a message."""


def report_unused(checkpoint: Checkpoint, expected: Iterable[str]) -> None:
    """ModelError where an unread tensor belongs to what is served; the others are one warning. `expected`: the names
    of all tensors that are read."""
    read = frozenset(expected)
    modules = {name.rpartition(".")[0] for name in read}
    layers = {match[1] for name in read if (match := LAYER.fullmatch(name))}
    drafting = (*DRAFTS, *drafting_layers(checkpoint.names, layers))
    others = (name for name in checkpoint.names - read if name != HEAD and not name.startswith(drafting))
    unused = sorted(name for name in others if not name.endswith(BUFFERS))
    foreign = [name for name in unused if belongs(name, modules, layers) and not is_neutral(checkpoint, name)]
    if foreign:
        raise ModelError(
            f"{checkpoint.path}: {named(foreign)} would change what the model computes, and the architecture that "
            f"config.json names, with its settings, has no place for {'it' if len(foreign) == 1 else 'them'}. "
            f"{advice(foreign[0])}"
        )
    if unused:
        log.warning(
            "%s: %d tensors are not used: %s%s", checkpoint.path, len(unused), listed(unused), reason(unused, layers)
        )


def drafting_layers(names: Iterable[str], layers: set[str]) -> Iterator[str]:
    """How names of blocks that draft begin which are numbered on from the layers that are served."""
    for name in names:
        match = LAYER.fullmatch(name)
        if match and match[2] == DRAFTING_LAYER and match[1] not in layers:
            yield f"model.layers.{match[1]}."


def belongs(name: str, modules: set[str], layers: set[str]) -> bool:
    """Does the tensor stand within a served layer, or beside the weight of a served module?"""
    if name.endswith(CACHE_SCALES):
        return False
    match = LAYER.fullmatch(name)
    return match[1] in layers if match else name.rpartition(".")[0] in modules


def is_neutral(checkpoint: Checkpoint, name: str) -> bool:
    """A bias of zeros adds nothing."""
    found = checkpoint.find(name)
    if not name.endswith(".bias") or found.dtype not in FLOATS or len(found.shape) != 1:
        return False
    return not dense(checkpoint.rows(name)).any()


def named(names: Sequence[str]) -> str:
    return f"tensor {names[0]}" if len(names) == 1 else f"{len(names)} tensors ({listed(names)})"


def listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def advice(name: str) -> str:
    if name.endswith(".bias"):
        return (
            "Correct config.json (attention_bias or mlp_bias, where the architecture has them), or remove the biases."
        )
    if "lora_" in name:
        return "It is an adapter's part: merge the adapter into the weights, or serve it with --plugin lora."
    if "scale" in name or "zero" in name or "g_idx" in name:
        return "It belongs to a quantised weight: config.json lacks its quantization_config."
    return "Correct `architectures` in config.json, or use weights of the architecture that it names."


def reason(unused: Sequence[str], layers: set[str]) -> str:
    """Why they are there, where the names say so."""
    if any((match := LAYER.fullmatch(name)) and match[1] not in layers for name in unused):
        return f". config.json has num_hidden_layers {len(layers)}: what follows in the file is left out"
    return ""
