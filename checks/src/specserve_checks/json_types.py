"""The types of JSON values: of bodies that are written, and of files that are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import msgspec

JsonValue: TypeAlias = (
    "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | msgspec.Struct | None"
)
"""Whatever msgspec encodes as JSON; a Struct is an object."""
JsonObject: TypeAlias = "dict[str, JsonValue]"
