"""Which of the target's hidden states an EAGLE-3 head reads, in one numbering: 0 is the embedding, n the output of
target layer n - 1. Knows nothing about tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve.api import ModelError

if TYPE_CHECKING:
    from specserve.api.files import RawJson

KEY = "eagle_aux_hidden_state_layer_ids"


def default_layers(num_layers: int) -> tuple[int, int, int]:
    """What every trainer collects where a checkpoint names no layers, in a target of that many layers."""
    return 2, num_layers // 2, num_layers - 3


def hidden_layers(raw: RawJson, num_layers: int, where: str) -> tuple[int, ...]:
    """The hidden states that the head in `raw` reads from a target of `num_layers` layers.

    Two numberings are in use. At the top level of config.json, which vLLM reads and the speculators format writes, ids
    are ours. Within `eagle_config`, which SpecForge and ModelOpt write and SGLang reads, id n is the output of target
    layer n: ours is one more. Files mix them up: converters copied ids from one place to the other, and vLLM reads both
    places alike. So ids that mean the default layers in either numbering mean the default layers, and an id of the last
    layer's output, which does not exist in SGLang's numbering, shows that ids within `eagle_config` are ours.
    """
    nested = raw.get("eagle_config") or {}
    given = raw.get(KEY) or nested.get(KEY)
    default = default_layers(num_layers)
    layers: tuple[int, ...] = default
    if given is not None:
        layers = _integers(given, where)
        if layers == tuple(layer - 1 for layer in default):
            layers = default
        elif not raw.get(KEY) and layers != default and max(layers) < num_layers:
            layers = tuple(layer + 1 for layer in layers)
    if min(layers) < 0 or max(layers) > num_layers:
        raise ModelError(
            f"{where}: the head reads hidden states {list(layers)} of its target, but this target has {num_layers} "
            f"layers, so 0 to {num_layers} are allowed. The head was trained for another target."
        )
    return layers


def _integers(given: Any, where: str) -> tuple[int, ...]:
    if not isinstance(given, list) or not given or not all(type(layer) is int for layer in given):
        raise ModelError(f"{where}: {KEY} must be a list of layer numbers; got {given!r}. Correct the file.")
    return tuple(given)
