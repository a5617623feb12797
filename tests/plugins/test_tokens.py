"""A typo in a declaration is an error and never a permission."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from specserve.errors import PluginError
from specserve.plugins.entry_points import PLUGINS
from specserve.plugins.features import FEATURES
from specserve.plugins.tokens import mention_problem, provide_problem

if TYPE_CHECKING:
    from fake_site import Install, Start


@pytest.mark.parametrize("token", ["draft.chian", "prefix_cash", "graph.ful", "lora", "drafts.chain"])
def test_an_unknown_token_in_or_near_a_closed_namespace_is_refused(token: str) -> None:
    assert "is not a known feature" in (provide_problem(token, "my-dist") or "")
    assert "is not a known feature" in (mention_problem(token, ["my-dist"]) or "")


def test_the_nearest_token_is_suggested() -> None:
    assert "did you mean 'draft.chain'?" in (mention_problem("draft.chian", []) or "")


@pytest.mark.parametrize("token", ["my-dist.thing", "my_dist.thing", "My.Dist.thing.deep"])
def test_a_distribution_adds_tokens_under_its_own_name(token: str) -> None:
    assert provide_problem(token, "my-dist") is None
    assert provide_problem(token, "other") is not None


def test_another_distributions_token_may_be_mentioned_before_it_is_installed() -> None:
    assert mention_problem("acme-speculation.beam", []) is None


def test_no_plugin_provides_what_the_core_does() -> None:
    assert provide_problem("prefix_cache", "my-dist") is not None
    assert all(mention_problem(token, []) is None for token in FEATURES)


def test_a_misspelt_token_stops_start_up_with_the_right_one(install: Install, start: Start) -> None:
    install("a", compatible={"lora.taget": "WORKS"})
    with pytest.raises(PluginError, match=r"plugin a .*specserve\.compatible\.a.*did you mean 'lora\.target'"):
        start("a")


@pytest.mark.parametrize("group", ["specserve.conflicts.b", "specserve.conflict.a", "specserve.plugin"])
def test_a_misspelt_group_stops_start_up(install: Install, start: Start, group: str) -> None:
    install("a", groups={group: {"lora.target": "fake_a.compat:FAILS"}})
    with pytest.raises(PluginError, match=group):
        start("a")


@pytest.mark.parametrize("value", ["my-package.plugin", "package.plugin:a.b", "package.plugin:", "a b"])
def test_an_entry_point_that_names_no_module_is_refused_and_hurts_nobody_else(
    install: Install, start: Start, value: str
) -> None:
    install("a", groups={PLUGINS: {"a": value}})
    install("b")
    assert start("b").loaded_names == ("b",)
    with pytest.raises(PluginError, match="must name a module"):
        start("a")


def test_a_plugin_that_declares_no_feature_is_refused(install: Install, start: Start) -> None:
    install("a", provides="")
    with pytest.raises(PluginError, match="no feature is declared"):
        start("a")


def test_two_distributions_with_one_plugin_name_are_refused(install: Install, start: Start) -> None:
    install("a")
    install("b", groups={PLUGINS: {"a": "fake_b.plugin"}})
    with pytest.raises(PluginError, match="both dist-a and dist-b call a plugin 'a'"):
        start("a")


@pytest.mark.parametrize(("constant", "said"), [("GONE", "AttributeError"), ("FAILS", "must be a Compatible or a str")])
def test_a_constant_that_is_missing_or_of_the_wrong_kind_is_refused(
    install: Install, start: Start, constant: str, said: str
) -> None:
    install("a", compatible={"lora.target": constant})
    with pytest.raises(PluginError, match=said):
        start("a")


def test_constants_are_read_from_compat_modules_only(install: Install, start: Start) -> None:
    install("a", groups={"specserve.compatible.a": {"lora.target": "fake_a.plugin:HOOKS"}})
    with pytest.raises(PluginError, match=r"must name a constant in a .compat module"):
        start("a")


def test_a_check_that_raises_is_named(install: Install, start: Start) -> None:
    compat = "from specserve.declare import Conflict\nBAD = Conflict('x', lambda enabled, config: 1 / 0)"
    install("a", conflicts={"logprobs": "BAD"}, compat=compat)
    with pytest.raises(PluginError, match=r"plugin a .*check of logprobs raised ZeroDivisionError"):
        start("a")
