"""Every option says its default and what is allowed, in --help and docs/operating.md, and refuses everything else."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import pytest

import option_table
from specserve.config import EngineConfig
from specserve.errors import ConfigError
from specserve_checks.allowed_values import (
    Allowed,
    AtLeast,
    Between,
    OneOf,
    Seconds,
    Unset,
    annotations_of,
    check_fields,
)
from specserve_server.cli import generate, main
from specserve_server.cli.option_help import allowed_text, default_text, field_help
from specserve_server.commands import serve
from specserve_server.config import ServerConfig
from specserve_workbench.commands import doctor

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIGS: tuple[type[Any], ...] = (ServerConfig, EngineConfig)
NOT_FLAGS = {"model", "plugins", "no_plugins", "default_plugins", "plugin_options", "allow_undeclared"}
"""Fields of EngineConfig that have flags of other names, or are an argument."""
PAGE = Path(__file__).parents[2] / "docs" / "operating.md"


class Field(NamedTuple):
    config: type[Any]
    name: str

    def __str__(self) -> str:
        return self.name


FIELDS = [Field(config, name) for config in CONFIGS for name in config.__struct_fields__ if name not in NOT_FLAGS]


def edges(field: Field) -> Iterator[tuple[object, bool]]:
    """Values at the ends of what a field allows, and whether each is allowed."""
    for allowed in annotations_of(field.config)[field.name]:
        match allowed:
            case Between(least, most):
                yield from ((least, True), (most, True), (least - 1, False), (most + 1, False))
            case AtLeast(least):
                yield from ((least, True), (least - 1, False), (float("nan"), False))
            case Seconds():
                yield from ((0.001, True), (0, False), (float("inf"), False), (float("nan"), False))
            case OneOf(values):
                yield from ((value, True) for value in values)
                yield ("nothing" if isinstance(values[0], str) else 3, False)


def flags_of(command: Any) -> list[argparse.Action]:
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    command.register(subparsers)
    (made,) = subparsers.choices.values()
    return [action for action in made._actions if action.option_strings and action.dest != "help"]


def test_the_page_has_the_table_of_the_options_that_there_are() -> None:
    text = PAGE.read_text()
    assert option_table.with_table(text) == text, "make pages"


@pytest.mark.parametrize("command", [serve, generate, doctor], ids=["serve", "generate", "doctor"])
def test_the_help_of_every_flag_says_its_default(command: Any) -> None:
    silent = [action.option_strings[0] for action in flags_of(command) if "default: " not in str(action.help)]
    assert set(silent) <= {"--explain", "--json", "--no-self-test"}, "switches of what is printed"


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_the_table_and_the_help_have_what_the_configuration_has(field: Field) -> None:
    (action,) = (action for action in flags_of(serve) if action.dest == field.name)
    default, allowed = default_text(field.config, field.name), allowed_text(field.config, field.name)
    switches_off = action.option_strings[0].startswith("--no-")
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{action.option_strings[0]}"))
    assert row.split(" | ")[1] == ("off" if switches_off else default.replace("*", "\\*"))
    assert allowed.replace("*", "\\*") in row
    assert allowed in str(action.help) or action.choices
    assert default in str(action.help) or switches_off


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_numbers_have_a_range_and_what_none_means_is_said(field: Field) -> None:
    beside = annotations_of(field.config)[field.name]
    default = getattr(field.config(), field.name)
    kinds = {part.__name__ for part in (int, float) if part.__name__ in str(field.config.__annotations__[field.name])}
    if default is None:
        assert any(isinstance(each, Unset) for each in beside)
    if kinds and not isinstance(default, bool):
        assert any(isinstance(each, Allowed) for each in beside)


@pytest.mark.parametrize(("field", "value", "is_allowed"), [(f, *edge) for f in FIELDS for edge in edges(f)], ids=str)
def test_what_is_allowed_is_taken_and_everything_else_refused_by_name(
    field: Field, value: object, is_allowed: bool
) -> None:
    if is_allowed:
        assert getattr(field.config(**{field.name: value}), field.name) == value
        return
    with pytest.raises(ConfigError, match=f"^{field.name} must be ") as refused:
        field.config(**{field.name: value})
    assert str(value) in str(refused.value)


def test_a_configuration_of_another_kind_is_checked_and_described_likewise() -> None:
    class Options(msgspec.Struct):
        width: Annotated[int, Between(1, 8)] = 4
        patience: Annotated[float | None, Seconds(), Unset("for ever")] = None

    check_fields(Options(), ValueError)
    assert str(field_help(Options, "width", "how wide")) == "how wide; 1 to 8; default: 4"
    assert str(field_help(Options, "patience", "how long")) == "how long; above 0; default: for ever"
    with pytest.raises(ValueError, match="width must be between 1 and 8; got 9"):
        check_fields(Options(width=9), ValueError)


def test_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["serve", "--help"])
    assert " ".join(capsys.readouterr().out.split()).count("default: ") > 40
