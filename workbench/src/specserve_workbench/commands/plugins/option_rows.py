"""A plugin's options as rows for a reader: name, default, what is allowed, and what it means."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import inspect as types

from specserve_checks.type_words import in_words, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

REQUIRED = "required"


class OptionRow(NamedTuple):
    """`default` is JSON, or `required`. `meaning`: "" where the Struct has no docstring behind the field."""

    name: str
    default: str
    allowed: str
    meaning: str


def option_rows(kind: type[msgspec.Struct]) -> list[OptionRow]:
    meanings = dict(field_docstrings(kind))
    return [
        OptionRow(field.encode_name, default_of(field), allowed(field.type), meanings.get(field.name, ""))
        for field in msgspec.structs.fields(kind)
    ]


def default_of(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        return shown(field.default)
    if field.default_factory is not msgspec.NODEFAULT:
        return shown(field.default_factory())
    return REQUIRED


def allowed(annotation: object) -> str:
    info = types.type_info(annotation)
    none = isinstance(info, types.UnionType) and any(isinstance(each, types.NoneType) for each in info.types)
    return f"{in_words(info)}, or null" if none else in_words(info)


def field_docstrings(kind: type[msgspec.Struct]) -> Iterator[tuple[str, str]]:
    """(field, the text behind it) of the class and those that it extends, where their source is there."""
    for base in reversed(kind.__mro__):
        if not issubclass(base, msgspec.Struct) or base is msgspec.Struct:
            continue
        try:
            (node,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError):
            continue
        assert isinstance(node, ast.ClassDef)
        for field, after in pairwise(node.body):
            match field, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    yield name, " ".join(text.split())
