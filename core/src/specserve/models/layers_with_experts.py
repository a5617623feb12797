"""What config.json says of mixtures of experts, as the families have it in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import ModelError
from specserve.models.experts_config import ExpertsConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.model_files import RawJson

COUNTS = ("num_experts", "num_local_experts")
"""Keys of the number of experts: transformers takes each for the other."""
READS = (*COUNTS, "num_experts_per_tok")


def whole_number(raw: RawJson, key: str) -> int:
    """One that is at least 1. Raises ModelError."""
    value = raw.get(key)
    if type(value) is int and value >= 1:
        return value
    raise ModelError(f"config.json: {key} must be a whole number, at least 1; got {value!r}. Correct the file.")


def counts(
    raw: RawJson, default: int, keys: Sequence[str] = COUNTS, of_token: str = "num_experts_per_tok"
) -> tuple[int, int]:
    """Experts of a layer, by any of `keys`, and of a token."""
    given = {key: whole_number(raw, key) for key in keys if key in raw}
    if len({*given.values()}) > 1:
        raise ModelError(f"config.json: {' and '.join(keys)} must be the same; got {given}. Correct the file.")
    count, chosen = next(iter(given.values()), default), whole_number(raw, of_token)
    if chosen > count:
        raise ModelError(
            f"config.json: {of_token} must be at most the number of experts, {count}; got {chosen}. Correct the file."
        )
    return count, chosen


def everywhere(raw: RawJson, num_layers: int, default: int) -> ExpertsConfig:
    """Experts in all layers, as wide as `intermediate_size`; what families have beside that has its default."""
    count, chosen = counts(raw, default)
    inner = whole_number(raw, "intermediate_size")
    return ExpertsConfig(count=count, chosen=chosen, inner_size=inner, layers=(True,) * num_layers)


def sparse_layers(raw: RawJson, num_layers: int) -> tuple[bool, ...]:
    """Per layer: whether it has experts, by `decoder_sparse_step` and `mlp_only_layers`."""
    step, plain = whole_number(raw, "decoder_sparse_step"), raw.get("mlp_only_layers") or []
    if not isinstance(plain, list) or not all(type(layer) is int for layer in plain):
        raise ModelError(f"config.json: mlp_only_layers must be a list of layers; got {plain!r}. Correct the file.")
    return tuple(layer not in plain and (layer + 1) % step == 0 for layer in range(num_layers))
