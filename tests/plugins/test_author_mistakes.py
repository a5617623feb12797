"""Mistakes that authors of plugins make: start-up and `plugins check --load` say who, what, where and what to do."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest
from author_mistakes import AT_START_UP, DRAFTER, KERNELS, OBSERVER, PROCESSOR, WHILE_SERVING
from fake_site import HOOKS, write_distribution, write_package

from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve.errors import ConfigError
from specserve.plugins.settings import parse_settings
from specserve_server.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from fake_site import Install


def check(capsys: pytest.CaptureFixture[str], *names: str, settings: tuple[str, ...] = ()) -> tuple[int, str]:
    """The exit code of `check --load`, and what it said: one paragraph."""
    flags = [flag for each in settings for flag in ("--set", each)]
    code = main(["plugins", "check", "--load", *names, *flags])
    shown = capsys.readouterr()
    said = shown.err or shown.out
    assert code == 0 or (shown.out == "" and said.count("\n") == 1)
    return code, said


def start_up(model: Path, *names: str, settings: tuple[str, ...] = ()) -> str:
    config = EngineConfig(
        model=str(model), plugins=names, kv_memory="64M", plugin_options=parse_settings(list(settings))
    )
    with pytest.raises(ConfigError) as caught:
        asyncio.run(AsyncEngine.start(config))
    return " ".join(str(caught.value).split())


@pytest.mark.parametrize("name", AT_START_UP)
def test_a_mistake_at_start_up_is_said_alike_by_check_load(name, install: Install, toy_model, capsys, monkeypatch):
    mistake = AT_START_UP[name]
    install("mine", provides=mistake.kind, plugin=mistake.source)
    code, said = check(capsys, "mine", settings=mistake.settings)
    assert code == 2
    for pattern in mistake.said:
        assert_says(pattern, said)
    assert without_addresses(start_up(toy_model, "mine", settings=mistake.settings)) in without_addresses(said)


def without_addresses(text: str) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def test_memory_that_is_too_small_for_kernels_is_no_fault_of_their_plugin(install: Install, toy_model):
    install("mine", provides="kernel.cpu", plugin=KERNELS.replace('ValueError("too wide")', "MemoryError()"))
    said = start_up(toy_model, "mine")
    assert said.startswith(f"there is not enough memory to load model {toy_model}")
    assert said.endswith("The system said: MemoryError")


@pytest.mark.parametrize("name", WHILE_SERVING)
def test_a_mistake_while_serving_is_found_by_check_load(name, install: Install, capsys):
    mistake = WHILE_SERVING[name]
    install("mine", provides=mistake.kind, plugin=mistake.source)
    code, said = check(capsys, "mine")
    assert code == 2
    for pattern in mistake.said:
        assert_says(pattern, said)


def assert_says(pattern: str, said: str) -> None:
    assert re.search(pattern, said), f"{pattern!r} is not in: {said}"


PATH_COUNTER = PROCESSOR.replace("        return", "        logits[1 + 7 * len(path)] += 100\n        return", 1)


def test_answers_that_depend_on_drafts_are_found_by_check_load(install: Install, capsys):
    """A processor whose edits follow from the number of drafted tokens."""
    install("mine", provides="draft.chain logits.processor", plugin=PATH_COUNTER + DRAFTER)
    code, said = check(capsys, "mine")
    assert code == 2
    assert_says(r'the answer of the request "greedy" depends on drafts: from token \d+ on it is \[\d+, ', said)


def test_check_load_says_what_drafters_gave_and_what_they_cost(install: Install, capsys):
    install("mine", plugin=DRAFTER)
    code, said = check(capsys, "mine")
    assert code == 0
    assert_says(
        r"4 requests gave \d+ tokens, the same with drafts and without; [\d.]+ s with drafts, [\d.]+ s without", said
    )
    assert_says(r"drafter mine: [1-9]\d* tokens drafted, \d+ of them accepted\.", said)
    install(
        "silent", plugin=DRAFTER.replace("Draft(tokens=(1,)) if limit else None", "None").replace('"mine"', '"silent"')
    )
    code, said = check(capsys, "silent")
    assert code == 0
    assert "drafter silent drafted nothing for these requests" in said


def test_torch_integers_are_tokens(install: Install, capsys):
    install("mine", plugin=DRAFTER.replace("tokens=(1,)", "tokens=(torch.tensor(1), torch.tensor(2))[:limit]"))
    code, said = check(capsys, "mine")
    assert (code, said.splitlines()[-1]) == (0, "ok.")
    assert " 0 tokens were drafted" not in said


@pytest.mark.parametrize(
    "group",
    ["specserve.plugin", "specserve_plugins", "specserv.plugins", "specserve.plugin.v2", "specserve-plugins-v2"],
)
def test_a_plugin_in_a_group_of_nearly_the_right_name_is_found(group, site, toy_model, capsys):
    write_package(site / "fake_mine", DRAFTER, "")
    provides = {"specserve.provides.mine": {"draft.chain": "fake_mine.compat"}}
    write_distribution(site, "dist-mine", {group: {"mine": "fake_mine.plugin"}, **provides})
    code, said = check(capsys, "mine")
    assert code == 2
    assert f"dist-mine has the entry-point group {group!r}; it must be 'specserve.plugins.v2'" in said
    assert start_up(toy_model, "mine") in said
    assert main(["plugins", "list"]) == 0
    assert group in capsys.readouterr().out


def test_a_misspelt_group_beside_the_right_one_is_named(install: Install, toy_model, capsys):
    install("mine", plugin=DRAFTER, groups={"specserve.provide.mine": {"draft.tree": "fake_mine.compat"}})
    code, said = check(capsys, "mine")
    assert code == 2
    assert "unknown entry-point group 'specserve.provide.mine'; did you mean 'specserve.provides.mine'?" in said
    assert start_up(toy_model, "mine") in said


def test_two_owners_of_a_role_are_named(install: Install, toy_model, capsys):
    install("mine", provides="planner.adaptive", compatible={"planner.adaptive": "WORKS"})
    install("yours", provides="planner.adaptive")
    code, said = check(capsys, "mine", "yours")
    assert code == 2
    assert "mine and yours both answer make_draft_planner, which only one plugin may own" in said
    assert start_up(toy_model, "mine", "yours") in said


@pytest.mark.parametrize(
    ("declared", "pattern"),
    [({"conflicts": {"draft.chain": "FAILS"}}, "both want the same thing"), ({}, r"specserve\.compatible\.mine")],
)
def test_a_conflict_and_an_undeclared_pair_are_explained(declared, pattern, install: Install, toy_model, capsys):
    install("mine", provides="observer.metrics", plugin=OBSERVER, **declared)
    install("yours", plugin=DRAFTER)
    code, said = check(capsys, "mine", "yours")
    assert code == 2
    assert_says(pattern, said)
    assert start_up(toy_model, "mine", "yours") in said


def test_hooks_and_features_that_do_not_belong_together_are_warnings(install: Install, capsys):
    install("mine", provides="observer.metrics draft.chain", plugin=OBSERVER + PROCESSOR)
    code, said = check(capsys, "mine")
    assert code == 0
    assert "mine implements logits_processors and declares none of its features: add logits.processor" in said
    assert "mine declares draft.chain and has no hook for it: implement make_drafter" in said


def test_what_serves_is_summed_up(install: Install, capsys):
    install("mine", plugin=DRAFTER)
    code, said = check(capsys, "mine")
    assert code == 0
    assert said.startswith("plugin mine 1.0 (dist-mine): draft.chain\n4 requests gave 84 tokens, ")


def test_names_are_needed_and_installed(install: Install, capsys):
    install("mine", plugin=HOOKS)
    assert check(capsys)[0] == 2
    code, said = check(capsys, "mien")
    assert code == 2
    assert "did you mean 'mine'" in said
