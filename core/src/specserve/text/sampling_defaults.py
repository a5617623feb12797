"""What the sampling parameters of a request are where it says nothing: the model's own defaults, none, or others."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from specserve.config import SAMPLING_DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Mapping


def sampling_defaults(setting: str | Mapping[str, float], generation: Mapping[str, object]) -> dict[str, float]:
    """`setting` is EngineConfig.generation_config, `generation` the content of generation_config.json."""
    if setting == "none":
        return {}
    given = {name: generation.get(name) for name in SAMPLING_DEFAULTS}
    values = {name: value for name, value in given.items() if is_number(value)}
    if not isinstance(setting, str):
        values |= setting
    if values.get("top_k") == -1:
        values["top_k"] = 0  # both mean all tokens
    return values


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
