"""The group size of `quantization_config`, as GPTQ and AWQ have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve.api import ModelError
from specserve_quantised.affine_source import USE_ANOTHER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def read_group_size(settings: Mapping[str, Any], keys: Sequence[str], where: str) -> int | None:
    """Inputs that share a scale; None: all of an output's. keys: the names that it may have."""
    size = given(settings, keys, 128)
    if type(size) is not int or size == 0 or size < -1:
        raise wrong(where, keys[0], "a number of inputs, or -1 for all", size)
    return None if size == -1 else size


def given(settings: Mapping[str, Any], keys: Sequence[str], absent: object) -> Any:
    """The value of the first of these keys that is there."""
    return next((settings[key] for key in keys if settings.get(key) is not None), absent)


def require(settings: Mapping[str, Any], allowed: Mapping[str, Sequence[object]], where: str) -> None:
    """ModelError where a key is there with a value that is not one of those allowed; the first of them is its
    default."""
    for key, values in allowed.items():
        got = given(settings, (key,), values[0])
        if not any(type(got) is type(value) and got == value for value in values):
            raise wrong(where, key, " or ".join(map(repr, values)), got)


def wrong(where: str, key: str, allowed: str, got: object) -> ModelError:
    return ModelError(f"{where}: quantization_config: {key} must be {allowed}; got {got!r}. {USE_ANOTHER}")
