"""Objects and lists within `speculators_config`, which heads in the speculators format have in config.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from specserve.api import ModelError

if TYPE_CHECKING:
    from specserve.api.files import RawJson

T = TypeVar("T", dict[str, Any], list[Any])
KINDS = {dict: "an object", list: "a list"}


def verifier(raw: RawJson, where: str) -> RawJson:
    """What it says of the target. Raises ModelError, as the others do."""
    return entry(speculators_config(raw, where), "verifier", dict, where)


def architectures(raw: RawJson, where: str) -> list[str]:
    """Of the target."""
    names = entry(verifier(raw, where), "architectures", list, where)
    return [name for name in names if isinstance(name, str)]


def proposals(raw: RawJson, where: str) -> list[RawJson]:
    """How the head is meant to draft."""
    methods = entry(speculators_config(raw, where), "proposal_methods", list, where)
    return [method for method in methods if isinstance(method, dict)]


def speculators_config(raw: RawJson, where: str) -> RawJson:
    return entry(raw, "speculators_config", dict, where)


def entry(raw: RawJson, key: str, kind: type[T], where: str) -> T:
    """Empty where it is missing or null."""
    value = raw.get(key)
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise ModelError(f"{where}: {key} must be {KINDS[kind]}; got {value!r}. Correct the file.")
    return value
