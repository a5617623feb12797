"""The template under template/ is a plugin that works, as it stands."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from fake_site import write_distribution

from specserve.config import EngineConfig
from specserve.errors import ConfigError
from specserve.plugins.discovery import discover
from specserve.plugins.rules import resolve
from specserve.types import Draft

if TYPE_CHECKING:
    from fake_site import Start

TEMPLATE = Path(__file__).parents[2] / "template"


@pytest.fixture
def template(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["project"]
    write_distribution(site, project["name"], project["entry-points"])
    monkeypatch.syspath_prepend(str(TEMPLATE / "src"))


def propose(drafter: Any, tokens: list[int], limit: int) -> Draft | None:
    batch = SimpleNamespace(spans=[SimpleNamespace(request=SimpleNamespace(tokens=tokens))])
    (draft,) = drafter.propose(batch, None, None, [limit])
    return draft


@pytest.mark.usefixtures("template")
def test_the_template_declares_itself_without_problems(site: Path) -> None:
    declaration = discover([str(site)])["repeat"]
    (plugin,) = resolve([declaration], EngineConfig()).plugins
    assert plugin.features == ("draft.chain",)
    assert sorted(plugin.compatible) == ["draft.chain", "draft.tree"]


@pytest.mark.usefixtures("template")
def test_the_templates_drafter_repeats_the_last_token_within_its_limits(start: Start) -> None:
    host = start("repeat", plugin_options={"repeat": {"width": "3"}})
    ((_, drafter),) = host.collect("make_drafter", model=None)
    assert propose(drafter, [5, 9, 9], 8) == Draft(tokens=(9, 9, 9))
    assert propose(drafter, [5, 9, 9], 2) == Draft(tokens=(9, 9))
    assert propose(drafter, [5, 9, 9], 0) is None
    assert propose(drafter, [9, 5], 8) is None


@pytest.mark.usefixtures("template")
def test_the_templates_option_has_bounds(start: Start) -> None:
    with pytest.raises(ConfigError, match=r"repeat\.width: expected `int` >= 1"):
        start("repeat", plugin_options={"repeat": {"width": "0"}})


def test_the_templates_constants_load_no_torch() -> None:
    program = "import sys, specserve_repeat.compat; print('torch' in sys.modules)"
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, cwd=TEMPLATE / "src", capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
