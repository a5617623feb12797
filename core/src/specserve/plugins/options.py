"""A plugin's options: from a table to the plugin's own Struct.

Owns the errors. Knows no plugin's options: their names, defaults and bounds are those of the Struct that the plugin
returns from `plugin_options`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import msgspec

from specserve.errors import ConfigError
from specserve.plugins.text import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def convert(plugin: str, kind: type[msgspec.Struct], table: Mapping[str, Any]) -> msgspec.Struct:
    """The plugin's Struct from a table; ConfigError names the plugin, the key, what was got and what is allowed."""
    refuse_unknown(plugin, kind, table, ())
    try:
        return msgspec.convert(dict(table), kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(rephrase(plugin, kind, table, str(error))) from None
    except ConfigError as error:
        raise type(error)(f"option of plugin {plugin}: {error}") from error


def refuse_unknown(plugin: str, kind: type[msgspec.Struct], table: Mapping[str, Any], path: tuple[str, ...]) -> None:
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in table.items():
        if key not in fields:
            name = ".".join((plugin, *path, key))
            raise ConfigError(f"{name} is not an option{did_you_mean(key, fields)} {allowed(plugin, kind, path)}")
        for struct, inner, part in inner_tables(fields[key], value):
            refuse_unknown(plugin, struct, inner, (*path, key, *part))


def inner_tables(
    annotation: Any, value: Any
) -> Iterable[tuple[type[msgspec.Struct], Mapping[str, Any], tuple[str, ...]]]:
    """The tables within an option that are Structs themselves: a Struct, an optional one, or a dict of them."""
    if not isinstance(value, dict):
        return
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation, value, ()
    elif get_origin(annotation) is dict:
        for key, inner in value.items():
            for struct, table, part in inner_tables(get_args(annotation)[1], inner):
                yield struct, table, (key, *part)
    else:
        for argument in get_args(annotation):
            yield from inner_tables(argument, value)


def rephrase(plugin: str, kind: type[msgspec.Struct], table: Mapping[str, Any], message: str) -> str:
    """msgspec's `Expected ... - at `$.key`` with the plugin's name and the value."""
    what, _, where = message.partition(" - at `$")
    path = [part for part in where.rstrip("`").replace("[...]", "").split(".") if part]
    got: Any = table
    for part in path:
        got = got.get(part) if isinstance(got, dict) else got
    shown = f" (the value is {got!r})" if path else ""
    choices = choices_of(kind, path)
    if choices and what.startswith("Invalid enum value"):
        what = f"must be one of {', '.join(map(repr, choices))}"
    return f"{'.'.join((plugin, *path))}: {what[:1].lower()}{what[1:]}{shown} {allowed(plugin, kind, ())}"


def choices_of(kind: type[msgspec.Struct], path: Sequence[str]) -> tuple[Any, ...]:
    """What a `Literal` option at the top of the table takes: msgspec names only what it got."""
    annotations = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    annotation = annotations.get(path[0]) if len(path) == 1 else None
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def allowed(plugin: str, kind: type[msgspec.Struct], path: tuple[str, ...]) -> str:
    """`(options of ngram: max_n = 4, min_n = 1).`"""
    shown = ", ".join(show_field(field) for field in msgspec.structs.fields(kind))
    return f"(options of {'.'.join((plugin, *path))}: {shown or 'none'})."


def show_field(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        return f"{field.encode_name} = {field.default!r}"
    if field.default_factory is not msgspec.NODEFAULT:
        return f"{field.encode_name} = {field.default_factory()!r}"
    return field.encode_name
