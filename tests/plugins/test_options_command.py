"""`specserve plugins options`: what is allowed, the default and the meaning of every option."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
from fake_site import HOOKS

from specserve_server.cli import main
from specserve_workbench.commands.plugins.option_rows import OptionRow, option_rows

if TYPE_CHECKING:
    import pytest

OWN = ("adaptive", "cpu", "eagle", "grammar", "hybrid_attn", "lora", "ngram")
DOCUMENTED = """
import msgspec
from typing import Annotated, Literal
from specserve.hookspecs import hookimpl

class Options(msgspec.Struct, frozen=True, kw_only=True):
    depth: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2
    \"\"\"How deep a draft
    may be.\"\"\"
    mode: Literal["a", "b"] | None = None
    path: str

@hookimpl
def plugin_options():
    return Options
"""


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["plugins", "options", *arguments]) == 0
    return capsys.readouterr().out


def test_every_option_of_our_plugins_has_a_meaning(capsys):
    found = json.loads(shown(capsys, *OWN, "--json"))
    assert [*found] == [*OWN]
    nameless = [f"{plugin}.{row['name']}" for plugin, rows in found.items() for row in rows if not row["meaning"]]
    assert nameless == []
    assert {"max_depth", "min_survival", "corpora"} <= {row["name"] for row in found["ngram"]}


def test_an_option_is_shown_with_what_is_allowed_and_its_default(install, capsys):
    install("mine", plugin=DOCUMENTED)
    assert shown(capsys, "mine") == (
        "--set mine.depth=...  (an integer between 1 and 64; default: 2)\n"
        "        How deep a draft may be.\n"
        '--set mine.mode=...  ("a" or "b", or null; default: null)\n'
        "--set mine.path=...  (a string; default: required)\n"
    )


def test_a_plugin_without_options_says_so(install, capsys):
    install("mine", plugin=HOOKS)
    assert shown(capsys, "mine") == "mine has no options.\n"


def test_a_plugin_that_is_not_installed_is_refused_with_the_nearest_name(capsys):
    assert main(["plugins", "options", "ngramm"]) == 2
    assert "did you mean 'ngram'" in capsys.readouterr().err


def test_a_struct_without_source_has_no_meanings():
    made = msgspec.defstruct("Made", [("share", float, 0.5)])
    assert option_rows(made) == [OptionRow("share", "0.5", "a number", "")]
