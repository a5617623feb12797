"""What config.json says of layers whose queries see a window of keys, and what contradicts itself there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import ModelError

if TYPE_CHECKING:
    from specserve.model_files import RawJson

ABSENT_WINDOW = 4096
"""What transformers assumes where the key is absent; an explicit null is no window."""
FULL = ("full_attention", "attention")
"""Both names of transformers for a layer without a window."""
SLIDING = "sliding_attention"


def window_of(raw: RawJson, where: str) -> int | None:
    """`sliding_window`; None for none."""
    window = raw.get("sliding_window", ABSENT_WINDOW)
    if window is not None and (not isinstance(window, int) or window < 1):
        raise ModelError(f"{where}: sliding_window must be a positive number of tokens or null; got {window!r}.")
    return window


def by_layer_types(raw: RawJson, num_layers: int, where: str) -> tuple[int | None, ...]:
    """Windows in the layers that `layer_types` names, or else from layer `max_window_layers` on, if
    `use_sliding_window` says so."""
    window = window_of(raw, where) if raw.get("use_sliding_window", False) else None
    if window is None:
        return (None,) * num_layers
    kinds = raw.get("layer_types")
    if kinds is None:
        first = raw.get("max_window_layers", 28)
        kinds = [SLIDING if layer >= first else "full_attention" for layer in range(num_layers)]
    known = {SLIDING, *FULL}
    if len(kinds) != num_layers or not known.issuperset(kinds):
        raise ModelError(
            f"{where}: layer_types must name one of {', '.join(sorted(known))} for each of the {num_layers} layers; "
            f"got {kinds!r}."
        )
    return tuple(window if kind == SLIDING else None for kind in kinds)


def layer_kinds(raw: RawJson, where: str) -> list[str] | None:
    """`layer_types`; None where it is not there."""
    kinds, count = raw.get("layer_types"), raw.get("num_hidden_layers")
    if kinds is not None and (not isinstance(kinds, list) or len(kinds) != count):
        raise ModelError(f"{where}: layer_types must name one kind for each of the {count} layers; got {kinds!r}.")
    return kinds


def refuse_windows(raw: RawJson, family: str, where: str) -> None:
    """Windows of a family whose layers have none."""
    kinds, window = layer_kinds(raw, where), raw.get("sliding_window")
    if is_full(kinds):
        return
    if kinds or not is_beyond(window, raw.get("max_position_embeddings")):
        raise ModelError(
            f"{where}: layers of family {family} have no windows; got sliding_window {window!r} and layer_types "
            f"{kinds!r}. Serve a model without; set sliding_window to null only if the weights were trained so."
        )


def refuse_contradiction(raw: RawJson, where: str) -> None:
    """Windows of a family whose layers may differ: a kind that needs a window must have one."""
    kinds, window = layer_kinds(raw, where), raw.get("sliding_window")
    if kinds and not is_full(kinds) and (window is None or not raw.get("use_sliding_window", False)):
        other = next(kind for kind in kinds if kind not in FULL)
        raise ModelError(
            f"{where}: layer_types names {other!r}, but use_sliding_window and sliding_window give no window. "
            "Correct the file."
        )


def refuse_other_kinds_of_layers(raw: RawJson, family: str, where: str) -> None:
    """Windows of a family whose layers all have the same."""
    kinds, window = layer_kinds(raw, where), raw.get("sliding_window")
    wanted = FULL if "sliding_window" in raw and window is None else (SLIDING,)
    if kinds and not all(kind in wanted for kind in kinds):
        raise ModelError(
            f"{where}: layer_types must be {wanted[0]!r} for every layer beside sliding_window {window!r}; got "
            f"{kinds!r}. Layers of family {family} have all the same window."
        )


def is_full(kinds: list[str] | None) -> bool:
    return kinds is not None and all(kind in FULL for kind in kinds)


def is_beyond(window: object, longest: object) -> bool:
    """A window that no context is longer than hides nothing."""
    return window is None or (isinstance(window, int) and isinstance(longest, int) and window >= longest)
