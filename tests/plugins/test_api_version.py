"""A plugin made for another version of the plugin API is refused by name, before any of its code is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fake_site import write_distribution

from specserve import hookspecs
from specserve.declare import PLUGIN_API, InProcessPlugin, PluginDeclaration
from specserve.errors import PluginError
from specserve.plugins.discovery import discover
from specserve.plugins.error_messages import CHANGES
from specserve_server.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from fake_site import Install, Start

IMPORTED = "raise SystemExit('imported')"
REFUSAL = (
    "plugin next (dist-next 1.0) is made for version 3 of the plugin API; this specserve (0.1.0) has version 2. "
    "Install a release of dist-next that is made for version 2. "
    "To start without it, remove --plugin next or pass --no-plugin next."
)


@pytest.fixture
def next_api(install: Install) -> None:
    """A plugin for the next version, whose modules cannot be imported and whose features are not known yet."""
    unknown = {"specserve.needs.next": {"weights": "fake_next.compat:WEIGHTS"}}
    install("next", api=3, provides="draft.dream", plugin=IMPORTED, compat=IMPORTED, groups=unknown)


@pytest.mark.usefixtures("next_api")
def test_a_plugin_for_another_version_stops_start_up_before_it_is_imported(start: Start) -> None:
    with pytest.raises(PluginError) as refused:
        start("next")
    assert str(refused.value) == REFUSAL
    assert not {"fake_next.plugin", "fake_next.compat"} & set(sys.modules)


@pytest.mark.usefixtures("next_api")
def test_it_is_installed_beside_plugins_of_this_version_without_harm(install: Install, start: Start) -> None:
    install("a")
    assert [(entry["name"], entry["api"]) for entry in start("a").describe()] == [("a", 2), ("next", 3)]


def test_a_plugin_for_version_1_is_told_where_it_stands_what_changed(install: Install, start: Start) -> None:
    install("old", api=1, plugin=IMPORTED, compat=IMPORTED)
    with pytest.raises(PluginError) as refused:
        start("old")
    assert str(refused.value) == (
        "plugin old (dist-old 1.0) is made for version 1 of the plugin API; this specserve (0.1.0) has version 2 "
        "(docs/plugins/version_2.md says what changed). Install a release of dist-old that is made for version 2. "
        "To start without it, remove --plugin old or pass --no-plugin old."
    )
    assert (Path(__file__).parents[2] / CHANGES).is_file()


def test_a_default_plugin_for_another_version_is_switched_off_with_the_reason(install: Install, start: Start) -> None:
    install("fast", api=3, provides={"kernel.cpu": "FITS"}, plugin=IMPORTED, compat=IMPORTED)
    (line,) = start().banner()
    assert line == (
        "plugin fast is switched off: plugin fast (dist-fast 1.0) is made for version 3 of the plugin API; "
        "this specserve (0.1.0) has version 2. Install a release of dist-fast that is made for version 2."
    )


def test_a_plugin_for_several_versions_is_taken_at_this_one(install: Install, start: Start) -> None:
    install("a", groups={"specserve.plugins": {"a": "fake_a.older"}, "specserve.plugins.v10": {"a": "fake_a.newest"}})
    host = start("a")
    assert [plugin.declaration.module for plugin in host.plugins if plugin.declaration] == ["fake_a.plugin"]
    assert host.describe()[0]["api"] == PLUGIN_API


@pytest.mark.parametrize("group", [f"specserve.plugins.{text}" for text in ("2", "v0", "v1", "v02")])
def test_a_group_that_names_no_version_is_refused_with_the_right_one(site: Path, start: Start, group: str) -> None:
    write_distribution(site, "dist-a", {group: {"a": "fake_a.plugin"}})
    said = rf"plugin a \(dist-a 1.0\) .*'{group}' names no version of the plugin API; it must be 'specserve.plugins.v2'"
    with pytest.raises(PluginError, match=said):
        start("a")


def test_a_plugin_that_is_given_as_an_object_may_state_its_version(start: Start) -> None:
    newer = InProcessPlugin(object(), PluginDeclaration(name="a", provides={"draft.chain": ""}, api=PLUGIN_API + 1))
    with pytest.raises(PluginError, match=r"plugin a .* is made for version 3 of the plugin API"):
        start(extra={"a": newer})


@pytest.mark.usefixtures("next_api")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["list"], 0, "problem: made for version 3 of the plugin API; this specserve (0.1.0) has version 2"),
        (["check"], 1, REFUSAL),
        (["check", "next"], 1, REFUSAL),
        (["explain", "next", "graph.full"], 2, REFUSAL),
    ],
)
def test_the_commands_say_so(arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", *arguments]) == code
    captured = capsys.readouterr()
    assert said in captured.out + captured.err


@pytest.mark.usefixtures("next_api")
def test_an_installed_distribution_is_refused_by_the_command_that_would_run_it(site: Path) -> None:
    run = [sys.executable, "-c", "from specserve_server.cli import main; raise SystemExit(main())", "generate", "x"]
    done = subprocess.run(
        [*run, "--plugin", "next"],
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"specserve: error: {REFUSAL}\n")


def test_the_plugins_of_this_repository_state_this_version() -> None:
    own = [d for d in discover().values() if d.dist.startswith("specserve-") or d.dist == "repeat-plugin"]
    assert {(d.name, d.api) for d in own} >= {
        (name, PLUGIN_API) for name in ("cpu", "hybrid_attn", "lora", "ngram", "repeat")
    }
    assert not [problem for d in own for problem in d.problems]


@pytest.mark.parametrize(
    ("option", "deprecated"),
    [
        ("warn_on_impl", DeprecationWarning),
        ("warn_on_impl_args", lambda text: {"config": DeprecationWarning(text)}),
    ],
)
@pytest.mark.filterwarnings("error::DeprecationWarning")
def test_a_deprecated_hook_or_argument_is_said_once_with_its_place(
    install: Install, start: Start, monkeypatch: pytest.MonkeyPatch, option: str, deprecated: Callable[[str], object]
) -> None:
    text = "deprecated since 0.9, not in version 3 of the plugin API; use another"
    monkeypatch.setitem(hookspecs.make_draft_planner.specserve_spec, option, deprecated(text))  # type: ignore[attr-defined]
    uses = "from specserve.hookspecs import hookimpl\n\n@hookimpl\ndef make_draft_planner(config):\n    return None\n"
    install("old", provides="planner.adaptive", plugin=uses)
    install("new", provides="observer.metrics", plugin=uses.replace("make_draft_planner", "make_observer"))
    lines = start("old", "new", allow_undeclared=True).banner()
    (line,) = [line for line in lines if "deprecated" in line]
    assert line.startswith("warning: old implements make_draft_planner (")
    assert line.endswith(f"fake_old/plugin.py:3): {text}.")
