"""Rotary settings of config.json, under one set of names.

Reads the new form (`rope_parameters`) and the old one (`rope_theta` and `rope_scaling`, which has priority); refuses
unknown types, because a wrong rotation still produces fluent text. Knows nothing about tables:
`specserve.models.rope` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.errors import ModelError

if TYPE_CHECKING:
    from specserve.model_files import RawJson

DEFAULT_THETA = 10_000.0
REQUIRED: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
    "longrope": ("short_factor", "long_factor"),
    "proportional": (),
}


class RopeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One rotation for all layers; `rope_type` decides which of the other fields are read."""

    rope_type: str = "default"
    rope_theta: float = DEFAULT_THETA
    partial_rotary_factor: float = 1.0
    """Which part of a head is rotated, its first dimensions; of `proportional` which part of the pairs that are half a
    head apart, the first ones."""
    factor: float | None = None
    original_max_position_embeddings: int | None = None
    attention_factor: float | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()


def rope_fields(raw: RawJson, where: str, *, rotates_parts: bool = False) -> RawJson:
    """The fields of a RopeConfig, still unchecked as to their types, from a whole config.json. `rotates_parts`: whether
    a partial factor holds beside the type `default`, too."""
    given: RawJson = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if not isinstance(given, dict) or any(isinstance(value, dict) for value in given.values()):
        raise ModelError(f"{where}: rotary parameters that differ by layer type are not supported; got {given!r}.")
    rope_type = given.get("rope_type", given.get("type", "default"))
    if rope_type not in REQUIRED:
        raise ModelError(f"{where}: rotary type {rope_type!r} is not supported. Supported: {', '.join(REQUIRED)}.")
    for name in REQUIRED[rope_type]:
        if given.get(name) is None and not (rope_type == "yarn" and "original_max_position_embeddings" in given):
            raise ModelError(f"{where}: rotary type {rope_type!r} needs {name!r}, which is missing. Correct the file.")
    fields = {name: given[name] for name in RopeConfig.__struct_fields__ if given.get(name) is not None}
    for name in ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings"):
        # Phi-style files keep the pretraining length outside; there it has priority.
        if raw.get(name) is not None and (name not in fields or name == "original_max_position_embeddings"):
            fields[name] = raw[name]
    if rope_type == "default" and not rotates_parts:  # heads are rotated as a whole, whatever factor the file sets
        fields.pop("partial_rotary_factor", None)
    return fields | {"rope_type": rope_type}
