"""Which targets have plain layers: training computes those itself, all windows of a batch at once and with gradients.
Others it reads as they are served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import ModelError

if TYPE_CHECKING:
    from specserve.api.models import ModelConfig


def other_parts(config: ModelConfig) -> list[str]:
    """What `target` does not compute of this model's layers; empty where they are plain."""
    found = {
        "capped scores": config.multipliers.score_cap is not None,
        "sinks": config.sinks,
        "mixers in place of attention": any(config.mixers),
        "heads of several sizes, or shared keys and values": bool(config.layer_attention),
        "norms of values": config.value_norm,
        "scales": config.layer_scales,
        "inputs of tokens": config.token_inputs is not None,
    }
    return [name for name, there in found.items() if there]


def check_adaptable(config: ModelConfig, library: str | None = None) -> None:
    """ModelError where no draft adapter can be trained for this model. Its weights are not needed for that. `library`:
    what computes it, if the engine does not."""
    if library is not None:
        raise ModelError(
            f"a draft adapter is trained through its target's layers, and {library} computes those of {config.family}. "
            "Train a head for it, such as --head eagle3."
        )
    if parts := other_parts(config):
        raise ModelError(
            f"a draft adapter is trained through its target's layers, which must be plain ones; those of family "
            f"{config.family} have {', '.join(parts)}. Train a head for it, such as --head eagle3."
        )
