"""Models some of whose layers have a window, and these a rotation of their own: what config.json says of each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from specserve.errors import ModelError
from specserve.models.windows import SLIDING, window_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specserve.model_files import RawJson

FULL = "full_attention"
Bases: TypeAlias = "Mapping[str, tuple[str | None, float]]"
"""By kind of layer: the key of its base outside `rope_parameters`, if it has one, and the base where none is given."""


def kinds(raw: RawJson, num_layers: int, full_every: int, where: str) -> list[str]:
    """The kind of every layer: as `layer_types` says, or else one without a window after `full_every` - 1 with one."""
    found = raw.get("layer_types")
    if found is None:
        if type(full_every) is not int or full_every < 1:
            raise ModelError(
                f"{where}: sliding_window_pattern must be a number of layers, at least 1; got {full_every!r}."
            )
        return [SLIDING if (layer + 1) % full_every else FULL for layer in range(num_layers)]
    return checked_kinds(found, (SLIDING, FULL), num_layers, where)


def checked_kinds(found: object, allowed: Sequence[str], num_layers: int, where: str) -> list[str]:
    """found: the kind of every layer."""
    if not isinstance(found, list) or len(found) != num_layers or not {*map(str, found)} <= {*allowed}:
        raise ModelError(
            f"{where}: layer_types must name {' or '.join(allowed)} for each of the {num_layers} layers; got {found!r}."
        )
    return found


def kinds_beside(mixing: str, attention: Sequence[str], found: object, num_layers: int, where: str) -> list[str]:
    """The same of a model some of whose layers are of the kind `mixing`, without attention, but not all."""
    kinds = checked_kinds(found, (mixing, *attention), num_layers, where)
    if {*kinds} == {mixing}:
        raise ModelError(
            f"{where}: layer_types must name {' or '.join(attention)} for at least one layer; got {found!r}."
        )
    return kinds


def windows(raw: RawJson, kinds: Sequence[str], where: str) -> tuple[int | None, ...]:
    """Per layer: how many keys a query sees; None for all."""
    window = window_of(raw, where)
    if window is None and SLIDING in kinds:
        raise ModelError(f"{where}: layer_types names {SLIDING!r}, but sliding_window is null. Correct the file.")
    return tuple(window if kind == SLIDING else None for kind in kinds)


def rotations(raw: RawJson, kinds: Sequence[str], bases: Bases, where: str) -> tuple[RawJson, ...]:
    """Per layer, in the form that `rope_fields` reads."""
    of_kind = {kind: rotation_of(raw, kind, bases, where) for kind in (FULL, SLIDING)}
    return tuple(of_kind[kind] for kind in kinds)


def main_rotation(raw: RawJson, bases: Bases) -> RawJson:
    """That of the layers without a window."""
    return rotation_of(raw, FULL, bases, "config.json")


def rotation_of(raw: RawJson, kind: str, bases: Bases, where: str) -> RawJson:
    """In new files `rope_parameters` has an object for each kind. In older ones `rope_scaling` is of layers without a
    window, and the bases have keys of their own."""
    given = raw.get("rope_parameters") or {}
    if not isinstance(given, dict) or not all(isinstance(each, dict) for each in given.values()):
        raise ModelError(f"{where}: rope_parameters must have an object for each of {FULL}, {SLIDING}; got {given!r}.")
    scaling: RawJson = (raw.get("rope_scaling") or {}) if kind == FULL else {}
    own = {**given.get(kind, {}), **scaling}
    key, base = bases[kind]
    outside = {name: value for name, value in raw.items() if name not in ("rope_scaling", "rope_theta")}
    return outside | {"rope_parameters": {"rope_theta": raw.get(key, base) if key else base, **own}}
