"""A plugin's options: from a table to the Struct that the plugin returns from `plugin_options`.

Owns the errors. Names, defaults and bounds are the Struct's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, get_args, get_origin

import msgspec

from specserve.code_places import where_written
from specserve.errors import ConfigError
from specserve_checks.nearest import did_you_mean
from specserve_checks.option_ranges import number_range
from specserve_checks.wrong_values import find_wrong_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


def convert(plugin: str, kind: type[msgspec.Struct], table: Mapping[str, object]) -> msgspec.Struct:
    """An instance of the Struct. ConfigError names the plugin, the key, the value and what is allowed."""
    refuse_unknown(plugin, kind, table, ())
    try:
        options = msgspec.convert(dict(table), kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(conversion_error(plugin, kind, table, error)) from None
    except ConfigError as error:
        raise type(error)(f"option of plugin {plugin}: {error}") from error
    for path in not_numbers(options):
        raise ConfigError(f"{plugin}.{path}: must be a number; got nan {list_options(plugin, kind, ())}")
    return options


def not_numbers(value: object, path: str = "") -> Iterator[str]:
    """The places of NaN, which is within all bounds since it compares with nothing."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from not_numbers(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, (list, tuple)):
        for i, inner in enumerate(value):
            yield from not_numbers(inner, f"{path}[{i}]")
    elif isinstance(value, float) and math.isnan(value):
        yield path


def refuse_unknown(plugin: str, kind: type[msgspec.Struct], table: Mapping[str, object], path: tuple[str, ...]) -> None:
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in table.items():
        if key not in fields:
            name = ".".join((plugin, *path, key))
            raise ConfigError(f"{name} is not an option{did_you_mean(key, fields)} {list_options(plugin, kind, path)}")
        for struct, inner, part in nested_tables(fields[key], value):
            refuse_unknown(plugin, struct, inner, (*path, key, *part))


def nested_tables(
    annotation: object, value: object
) -> Iterable[tuple[type[msgspec.Struct], Mapping[str, object], tuple[str, ...]]]:
    """(Struct, table, path) of every table within an option: of a Struct, an optional Struct or a dict of Structs."""
    if not isinstance(value, dict):
        return
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation, value, ()
    elif get_origin(annotation) is dict:
        for key, inner in value.items():
            for struct, table, part in nested_tables(get_args(annotation)[1], inner):
                yield struct, table, (key, *part)
    else:
        for argument in get_args(annotation):
            yield from nested_tables(argument, value)


def conversion_error(
    plugin: str, kind: type[msgspec.Struct], table: Mapping[str, object], error: msgspec.ValidationError
) -> str:
    """In place of msgspec's `Expected ... - at `$.key``: the option, what is allowed and the value."""
    message = str(error)
    what, _, where = message.partition(" - at `$")
    path = [part for part in where.rstrip("`").replace("[...]", "").split(".") if part]
    got: object = table
    for part in path:
        got = got.get(part) if isinstance(got, dict) else got
    shown = f" (the value is {got!r})" if path else ""
    if what.startswith("Object missing required field"):
        shown = f"; give it one with --set, or a default in the plugin{where_written(kind)}"
    choices = choices_of(kind, path)
    if choices and what.startswith("Invalid enum value"):
        what = f"must be one of {', '.join(map(repr, choices))}"
    elif what.startswith("Expected ") and (allowed := number_range(kind, path)):
        what = f"must be {allowed}"
    elif path and what.startswith(("Expected ", "Invalid ")):
        wrong = find_wrong_value(error, dict(table), kind)
        what, _, given = wrong.text.partition("; got ")
        if "[...]" in where:  # msgspec does not say which key
            return f"{plugin}.{wrong.path}: {what} (the value is {given}) {list_options(plugin, kind, ())}"
    return f"{'.'.join((plugin, *path))}: {what[:1].lower()}{what[1:]}{shown} {list_options(plugin, kind, ())}"


def choices_of(kind: type[msgspec.Struct], path: Sequence[str]) -> tuple[object, ...]:
    """The values of an option at the top level that is a `Literal`, or one or None: msgspec's message does not name
    them."""
    annotations = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    annotation = annotations.get(path[0]) if len(path) == 1 else None
    literals = (part for part in (annotation, *get_args(annotation)) if get_origin(part) is Literal)
    return get_args(next(literals, None))


def list_options(plugin: str, kind: type[msgspec.Struct], path: tuple[str, ...]) -> str:
    """`(options of ngram: max_n = 4, min_n = 1).`"""
    shown = ", ".join(show_field(field) for field in msgspec.structs.fields(kind))
    return f"(options of {'.'.join((plugin, *path))}: {shown or 'none'})."


def show_field(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        return f"{field.encode_name} = {field.default!r}"
    if field.default_factory is not msgspec.NODEFAULT:
        return f"{field.encode_name} = {field.default_factory()!r}"
    return field.encode_name
