"""Whether a head was trained for the target that it is to draft for, as far as its files tell.

Compared are vocabulary, hidden size, depth, and the family of the verifier that the speculators format names. A head of
another model with the same four (a fine-tune of the target, say) cannot be told apart: it shows as low acceptance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import ModelError
from specserve.models.families import ARCHITECTURES
from specserve_eagle.checkpoints import speculators

if TYPE_CHECKING:
    from specserve.api.files import RawJson
    from specserve_eagle.checkpoints.head_config import HeadConfig
    from specserve_eagle.checkpoints.layout import Layout
    from specserve_eagle.checkpoints.target_sizes import TargetSizes

ANOTHER_TARGET = "The head was trained for another target; use one that was trained for this model."


def check_target(
    config: HeadConfig, raw: RawJson, names: frozenset[str], layout: Layout, target: TargetSizes, where: str
) -> None:
    """ModelError where the head cannot be this target's."""
    if config.vocab_size != target.vocab_size:
        _differ(where, "vocabulary", f"{config.vocab_size} tokens", f"{target.vocab_size}")
    if config.target_hidden_size != target.hidden_size:
        _differ(where, "target_hidden_size", str(config.target_hidden_size), f"hidden states of {target.hidden_size}")
    for part in ("embed_tokens", "lm_head"):
        if config.hidden_size != target.hidden_size and not _has(names, layout, part) and _needs(config, part):
            raise ModelError(
                f"{where}: the head has hidden_size {config.hidden_size} and no {part} of its own, and the target's is "
                f"{target.hidden_size} wide. {ANOTHER_TARGET}"
            )
    if config.kind != "eagle3" and config.hidden_size != target.hidden_size:
        _differ(where, "hidden_size", str(config.hidden_size), f"hidden states of {target.hidden_size}")
    _check_depth(layout, target, where)
    _check_verifier(raw, target, where)


def _needs(config: HeadConfig, part: str) -> bool:
    return part == "embed_tokens" or config.draft_vocab_size == config.vocab_size


def _has(names: frozenset[str], layout: Layout, part: str) -> bool:
    return any(name in names for name in layout.candidates(part))


def _check_depth(layout: Layout, target: TargetSizes, where: str) -> None:
    """An MTP layer is numbered on from its target's layers, or 0 where it was exported by itself."""
    if layout.layer_index not in (None, 0, target.num_layers):
        _differ(where, "MTP layer", f"number {layout.layer_index}", f"{target.num_layers} layers, which end before it")


def _check_verifier(raw: RawJson, target: TargetSizes, where: str) -> None:
    stated = speculators.architectures(raw, where)
    families = {ARCHITECTURES[name].name for name in stated if name in ARCHITECTURES}
    own = ARCHITECTURES[target.family].name if target.family in ARCHITECTURES else target.family
    if families and own not in families:
        named = speculators.verifier(raw, where).get("name_or_path") or "a model"
        _differ(where, "verifier", f"{named} of family {', '.join(sorted(families))}", f"family {own}")


def _differ(where: str, what: str, got: str, expected: str) -> None:
    raise ModelError(f"{where}: {what} of the head: {got}; of the target: {expected}. {ANOTHER_TARGET}")
