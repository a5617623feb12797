"""Which targets heads can be trained on: those whose layers `target` computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import ModelError

if TYPE_CHECKING:
    from specserve.api.models import ModelConfig


def check_teachable(config: ModelConfig) -> None:
    """ModelError where training does not compute this model's layers. Its weights are not needed for that."""
    if config.multipliers.score_cap is not None or config.sinks:
        raise ModelError(
            f"heads are trained on plain attention only, and layers of family {config.family} cap scores or have sinks."
            " Train on another target, or use a draft model: --set eagle.model=DIR."
        )
    if any(config.mixers):
        raise ModelError(
            f"heads are trained on attention in every layer, and family {config.family} has others. Train on another "
            "target, or use a draft model: --set eagle.model=DIR."
        )
    if config.layer_attention:
        raise ModelError(
            f"heads are trained on layers that are alike, and family {config.family} has layers with heads of several "
            "sizes, or that share keys and values. Train on another target, or draft with n-grams: --plugin ngram."
        )
    found = {
        "norms of values": config.value_norm,
        "scales of layers": config.layer_scales,
        "inputs of tokens": config.token_inputs is not None,
    }
    if parts := [name for name, there in found.items() if there]:
        raise ModelError(
            f"heads are trained on layers without {' and '.join(parts)}, which family {config.family} has. Train on "
            "another target, or draft with n-grams: --plugin ngram."
        )
