"""Checks that what hooks return implements the interfaces of `specserve.api`, before the engine calls it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from specserve.code_places import in_brackets, place_of_error, where_written
from specserve.errors import PluginError
from specserve.faults import FAULTS, error_summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

T = TypeVar("T")


def check_members(
    owner: str, found: str, value: object, kind: str, *, attributes: Sequence[str] = (), methods: Sequence[str] = ()
) -> None:
    """Raise PluginError where `value` lacks a member of the protocol `kind`. `found`: the error's verb and object."""
    check_callable_now(owner, found, value, kind, methods)
    if missing := missing_members(value, attributes, methods):
        raise PluginError(
            f"{owner} {found}{where_written(value)}, which is no {kind}: it lacks {', '.join(missing)}. "
            f"See specserve.api.{kind}, or remove --plugin {owner}."
        )


def check_extends(owner: str, found: str, value: object, base: type) -> None:
    """Raise PluginError where `value` is no instance of the base class, or has a method that cannot be called now."""
    methods = [name for name, member in vars(base).items() if inspect.isfunction(member) and not name.startswith("_")]
    check_callable_now(owner, found, value, base.__name__, methods)
    if not isinstance(value, base):
        raise PluginError(
            f"{owner} {found}{where_written(value)}, which is no {base.__name__}: its class does not extend "
            f"{public_name(base)}. Let it, or remove --plugin {owner}."
        )
    for method in methods:
        if not callable(member := getattr(value, method)):
            raise PluginError(
                f"{owner} {found}{where_written(value)}, whose {method} is a {type(member).__name__}, and cannot be "
                f"called. See {public_name(base)}, or remove --plugin {owner}."
            )


def public_name(base: type) -> str:
    """As plugins import it."""
    package = base.__module__
    if package == "builtins":
        return base.__name__
    if package.startswith("specserve."):
        package = "specserve.api.models" if package.startswith("specserve.models.") else "specserve.api"
    return f"{package}.{base.__name__}"


def check_callable_now(owner: str, found: str, value: object, kind: str, methods: Iterable[str]) -> None:
    """Raise PluginError for a class in place of an instance, and for a method that is async."""
    if isinstance(value, type):
        raise PluginError(
            f"{owner} {found}{where_written(value)}: the class {value.__name__} itself, and no {kind}. "
            f"Return an instance of it, or remove --plugin {owner}."
        )
    for method in methods:
        if is_async(getattr(value, method, None)):
            raise PluginError(
                f"{owner} {found}{where_written(value)}, whose method {method} must not be async: the engine "
                f"calls it and uses what it returns, and awaits nothing. Write 'def' for 'async def', or remove "
                f"--plugin {owner}."
            )


def is_async(function: object) -> bool:
    """Whether calling it gives a coroutine or an asynchronous generator in place of a result."""
    plain = getattr(function, "func", function)  # of a functools.partial
    return inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain)


def missing_members(value: object, attributes: Sequence[str] = (), methods: Sequence[str] = ()) -> list[str]:
    """A method that is not callable is missing."""
    missing = [name for name in attributes if not hasattr(value, name)]
    return missing + [name for name in methods if not callable(getattr(value, name, None))]


def check_type(owner: str, what: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise wrong_type(owner, what, value, f"a {public_name(kind)}")


def wrong_type(owner: str, what: str, got: object, wanted: str) -> PluginError:
    return PluginError(
        f"{owner}: {what} must be {wanted}; got {type(got).__name__} {short_repr(got)}{where_written(got)}. "
        f"Repair the plugin, or remove --plugin {owner}."
    )


def as_list(owner: str, hook: str, result: Iterable[T]) -> list[T]:
    """The elements of a hook's result that must be an iterable."""
    if isinstance(result, (str, bytes, Mapping)) or not hasattr(result, "__iter__"):
        raise wrong_type(owner, f"what {hook} returns", result, "a list of them")
    try:
        return list(result)
    except FAULTS as error:
        where = in_brackets(place_of_error(error))
        raise PluginError(
            f"{owner} {error_summary(error)}{where} while what its hook {hook} returned was read. "
            f"Repair the plugin, or remove --plugin {owner}."
        ) from error


def short_repr(value: object) -> str:
    """At most 60 characters; empty where the object's own __repr__ raises."""
    try:
        text = repr(value)
    except FAULTS:
        return ""
    return text if len(text) <= 60 else text[:59] + "…"
