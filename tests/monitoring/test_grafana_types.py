"""The dashboard fits the types that Grafana makes of its published schema: grafana-foundation-sdk."""

from __future__ import annotations

import enum
import json
import sys
import typing
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from monitoring_files import dashboard

if TYPE_CHECKING:
    from collections.abc import Iterator

models = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
from grafana_foundation_sdk.cog import plugins  # noqa: E402
from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: E402

OF_THE_EDITOR = {"definition", "builtIn"}
"""Fields that Grafana's own exports have and its schema lacks."""


@pytest.fixture(scope="module", autouse=True)
def _known_panels() -> None:
    """Options of panels and queries of Prometheus get their types, too."""
    plugins.register_default_plugins()


def lost(told: Any, kept: Any, path: str = "") -> Iterator[str]:
    """Fields of `told` that `kept` lacks or has otherwise."""
    if isinstance(told, dict):
        for name, value in told.items():
            if name not in kept:
                yield f"{path}.{name}"
            else:
                yield from lost(value, kept[name], f"{path}.{name}")
    elif isinstance(told, list):
        for number, (one, other) in enumerate(zip(told, kept, strict=True)):
            yield from lost(one, other, f"{path}[{number}]")
    elif told != kept:
        yield path


def wrong(value: Any, hint: Any, path: str) -> Iterator[str]:
    """What is not of its type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(value, dict) and hasattr(hint, "from_json"):
        value = hint.from_json(value)  # the kit leaves some as they are
    if origin is typing.Union:
        yield from min((list(wrong(value, one, path)) for one in arguments), key=len)
    elif not is_of(value, origin or hint, arguments):
        yield f"{path}: {value!r}"
    elif origin is list:
        for number, one in enumerate(value):
            yield from wrong(one, arguments[0], f"{path}[{number}]")
    elif origin is dict:
        for name, one in value.items():
            yield from wrong(one, arguments[1], f"{path}.{name}")
    elif hasattr(value, "to_json"):
        for name, inner in fields_of(type(value)).items():
            yield from wrong(getattr(value, name), inner, f"{path}.{name}")


def is_of(value: Any, kind: Any, arguments: tuple[Any, ...]) -> bool:
    if kind is typing.Literal:
        return value in arguments
    if not isinstance(kind, type):
        return True  # Any
    if issubclass(kind, enum.Enum):
        return value in [each.value for each in kind]
    if kind in (int, float):
        return type(value) in (int, kind)
    return isinstance(value, kind)


@cache
def fields_of(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, vars(sys.modules[kind.__module__]))


def complaints(told: Any) -> list[str]:
    read = models.Dashboard.from_json(told)
    kept = json.loads(JSONEncoder().encode(read))
    left_out = [path for path in lost(told, kept) if path.rpartition(".")[2] not in OF_THE_EDITOR]
    return left_out + list(wrong(read, models.Dashboard, ""))


def test_the_dashboard_is_one_by_grafanas_schema() -> None:
    assert complaints(dashboard()) == []


@pytest.mark.parametrize(
    ("place", "name", "value", "said"),
    [
        ((), "titel", "x", "titel"),
        ((), "graphTooltip", 7, "graph_tooltip: 7"),
        (("panels", 1), "descripton", "x", "descripton"),
        (("panels", 1, "gridPos"), "h", "4", "grid_pos.h: '4'"),
        (("panels", 1, "options"), "graphMode", "areas", "graph_mode: 'areas'"),
        (("panels", 1, "options", "reduceOptions"), "calcs", "mean", "calcs: 'mean'"),
        (("panels", 1, "fieldConfig", "defaults", "color"), "mode", "threshold", "mode: 'threshold'"),
        (("panels", 1, "targets", 0), "expression", "up", "expression"),
        (("templating", "list", 1), "multi", "yes", "multi: 'yes'"),
    ],
)
def test_what_does_not_fit_is_found(place: tuple[Any, ...], name: str, value: Any, said: str) -> None:
    told = dashboard()
    changed = told
    for step in place:
        changed = changed[step]
    changed[name] = value
    (found,) = complaints(told)
    assert said in found
