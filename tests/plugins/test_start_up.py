"""What start-up enables, what it refuses, and what it says."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from fake_site import HOOKS, FakeBuiltin

from specserve.config import EngineConfig
from specserve.errors import ConfigError, PluginError
from specserve.plugins.host import PluginHost

if TYPE_CHECKING:
    from fake_site import Install, Start

KERNELS = """
from specserve.hookspecs import hookimpl

@hookimpl
def make_kernels(device):
    return "native " + device
"""
RUNNER = """
from specserve.hookspecs import hookimpl

@hookimpl
def make_runner():
    return "a runner"
"""


def test_installed_is_not_enabled_and_not_imported(install: Install, start: Start) -> None:
    install("a")
    install("b", plugin="raise RuntimeError('imported')")
    host = start("a")
    assert host.loaded_names == ("a",)
    assert host.features == {"draft.chain"}
    assert "fake_b.plugin" not in sys.modules


def test_a_missing_plugin_is_named_with_the_nearest_one(install: Install, start: Start) -> None:
    install("ngram")
    with pytest.raises(PluginError, match=r"plugin ngrm is not installed; did you mean 'ngram'\?"):
        start("ngrm")


def test_conflicting_plugins_stop_start_up_before_either_is_imported(install: Install, start: Start) -> None:
    install("eagle", provides="draft.model", conflicts={"draft.chain": "FAILS"})
    install("ngram")
    with pytest.raises(PluginError, match=r"eagle cannot run with ngram: both want the same thing. Remove --plugin"):
        start("eagle", "ngram")
    assert "fake_eagle.plugin" not in sys.modules


def test_undeclared_plugins_stop_start_up_unless_allowed(install: Install, start: Start) -> None:
    install("a")
    install("b", provides="lora.target")
    with pytest.raises(PluginError, match=r"a and b are undeclared.*Missing: .*--allow-undeclared"):
        start("a", "b")
    host = start("a", "b", allow_undeclared=True)
    assert any(line.startswith("warning: a and b are undeclared") for line in host.banner())
    assert [entry["undeclared"] for entry in host.describe()] == [["b"], ["a"]]


def test_allow_undeclared_does_not_allow_a_conflict(install: Install, start: Start) -> None:
    install("a")
    install("b", provides="lora.target", conflicts={"draft.chain": "FAILS"})
    with pytest.raises(PluginError, match="a cannot run with b"):
        start("a", "b", allow_undeclared=True)


def test_a_plugin_that_fails_to_import_stops_start_up_with_the_reason(install: Install, start: Start) -> None:
    install("a", plugin="import a_module_that_is_not_there")
    with pytest.raises(PluginError, match=r"plugin a \(dist-a 1.0\) failed to import .*a_module_that_is_not_there"):
        start("a")


def test_a_misspelt_hook_stops_start_up_with_the_right_one(install: Install, start: Start) -> None:
    install("a", plugin=HOOKS.replace("make_draft_planner", "make_draft_planer"))
    with pytest.raises(PluginError, match=r"a implements 'make_draft_planer'.*did you mean 'make_draft_planner'"):
        start("a")


def test_a_hook_without_its_marker_stops_start_up(install: Install, start: Start) -> None:
    install("a", plugin=HOOKS + "\ndef make_verifier():\n    return None\n")
    with pytest.raises(PluginError, match=r"plugin a defines make_verifier \(.*plugin\.py:\d+\) without the marker"):
        start("a")


def test_a_plugin_without_hooks_stops_start_up(install: Install, start: Start) -> None:
    install("a", plugin="")
    with pytest.raises(PluginError, match="plugin a implements no hook"):
        start("a")


def test_a_hook_with_an_unknown_argument_stops_start_up(install: Install, start: Start) -> None:
    install("a", plugin=HOOKS.replace("planner()", "planner(confg)"))
    with pytest.raises(
        PluginError, match=r"plugin a: hook make_draft_planner .* takes confg, .*any of config, options, runtime"
    ):
        start("a")


def test_a_hook_of_a_later_release_may_be_implemented_as_optional(install: Install, start: Start) -> None:
    later = "\n@hookimpl(optionalhook=True)\ndef make_tea():\n    return None\n"
    install("a", plugin=HOOKS + later)
    assert start("a").loaded_names == ("a",)


def test_a_hook_whose_feature_is_not_declared_is_a_warning(install: Install, start: Start) -> None:
    observer = "\n@hookimpl\ndef make_observer():\n    return None\n"
    begin = "from specserve.hookspecs import hookimpl\n"
    processor = "\n@hookimpl\ndef logits_processors():\n    return []\n"
    install("a", plugin=begin + processor + observer, provides="logits.processor")
    install("b", plugin=begin + observer, provides="observer.metrics", compatible={"logits.processor": "WORKS"})
    assert [line for line in start("a", "b").banner() if line.startswith("warning")] == [
        "warning: a implements make_observer and declares none of its features: "
        "add observer.metrics to specserve.provides.a."
    ]


def test_the_plugins_of_this_repository_declare_the_features_of_their_hooks() -> None:
    config = EngineConfig(plugins=("hybrid_attn", "lora", "ngram", "repeat"))
    host = PluginHost.start(config, builtin=FakeBuiltin())
    assert [line for line in host.banner() if line.startswith("warning")] == []


def test_kernel_plugins_are_on_by_default(install: Install, start: Start) -> None:
    install("cpu", provides="kernel.cpu", plugin=KERNELS)
    assert start().loaded_names == ("cpu",)
    assert start(no_plugins=("cpu",)).loaded_names == ()
    assert start(default_plugins=False).loaded_names == ()
    assert start("cpu", default_plugins=False).loaded_names == ("cpu",)


PLANNER = """
from specserve.hookspecs import hookimpl

@hookimpl
def make_draft_planner():
    return None
"""
DRAFTER = PLANNER.replace("make_draft_planner", "make_drafter")
FITS = {"draft.chain": "WORKS", "planner.adaptive": "WORKS"}


def test_planners_are_on_by_default_where_there_is_something_to_plan(install: Install, start: Start) -> None:
    install("drafts", plugin=DRAFTER, compatible=FITS)
    install("plans", provides="planner.adaptive", plugin=PLANNER, compatible=FITS)
    assert start().loaded_names == ()
    assert start().banner() == [], "nothing is amiss"
    assert start("drafts").loaded_names == ("drafts", "plans")
    assert start("drafts", no_plugins=("plans",)).loaded_names == ("drafts",)
    assert start("drafts", default_plugins=False).loaded_names == ("drafts",)
    assert start("plans").loaded_names == ("plans",)


def test_a_planner_that_is_asked_for_takes_the_place_of_a_default_one(install: Install, start: Start) -> None:
    install("drafts", plugin=DRAFTER, compatible=FITS)
    for name in ("plans", "rival"):
        install(name, provides="planner.adaptive", plugin=PLANNER, compatible=FITS)
    assert start("drafts", "rival").loaded_names == ("drafts", "rival")
    assert start("drafts").loaded_names == ("drafts", "plans"), "of several the first by name"


def test_options_of_a_planner_that_has_nothing_to_plan_are_ignored(install: Install, start: Start) -> None:
    install("plans", provides="planner.adaptive", plugin=PLANNER)
    options = {"plans": {"width": 3}}
    assert start(plugin_options=options).loaded_names == ()
    with pytest.raises(ConfigError, match="plans, which is not enabled"):
        start(plugin_options=options, default_plugins=False)


@pytest.mark.parametrize("fixed", [{"draft_tokens": 3}, {"max_draft_batch": 4}], ids=str)
def test_a_fixed_number_of_draft_tokens_switches_adaptive_off(fixed: dict[str, int]) -> None:
    assert PluginHost.start(EngineConfig(plugins=("ngram",))).loaded_names == (
        "ngram",
        "adaptive",
        "cpu",
        "gguf",
        "quantised",
        "transformers",
    )
    host = PluginHost.start(EngineConfig(plugins=("ngram",), **fixed))
    assert host.loaded_names == ("ngram", "cpu", "gguf", "quantised", "transformers")
    (name,) = fixed
    begin = f"plugin adaptive is switched off: planner.adaptive: --{name.replace('_', '-')} {fixed[name]} fixes what"
    assert any(line.startswith(begin) for line in host.banner())


def test_a_default_plugin_that_conflicts_is_switched_off_with_its_reason(install: Install, start: Start) -> None:
    install("cpu", provides="kernel.cpu", plugin=KERNELS, conflicts={"graph.full": "FAILS"})
    install("graphs", provides="graph.replay", plugin=RUNNER)
    host = start(graphs="full")
    said = "plugin cpu is switched off: cpu cannot run with graph.full: both want the same thing."
    assert host.banner() == ["plugin graphs 1.0 (dist-graphs): graph.replay", said]
    (cpu,) = (each for each in host.describe() if each["name"] == "cpu")
    assert cpu["reason"] == "cpu cannot run with graph.full: both want the same thing."


@pytest.mark.parametrize(
    ("conflict", "graphs"), [("graph.full", "piecewise"), ("graph.piecewise", "none"), (None, "full")]
)
def test_automatic_graphs_are_the_best_that_requested_plugins_run_with(
    install: Install, start: Start, conflict: str | None, graphs: str
) -> None:
    install("a", conflicts={conflict: "FAILS"} if conflict else {})
    install("graphs", provides="graph.replay", plugin=RUNNER)
    host = start("a", device="cuda")
    assert host.config.graphs == graphs
    notes = [line for line in host.banner() if line.startswith("graphs are")]
    assert len(notes) == (conflict is not None)
    if conflict:
        begin = f"graphs are {graphs} and not full: a cannot run with {conflict}: both want the same thing."
        assert notes[0].startswith(begin)
        with pytest.raises(PluginError, match=f"a cannot run with {conflict}"):
            start("a", device="cuda", graphs="full")
    assert start("a").config.graphs == "none", "on CPUs there are none"


def test_graphs_need_a_plugin_that_replays_steps(install: Install, start: Start) -> None:
    install("graphs", provides="graph.replay", plugin=RUNNER)
    with pytest.raises(PluginError, match=r"--graphs full: no enabled plugin replays steps\. .*--plugin graphs"):
        start(graphs="full", default_plugins=False)
    host = start(device="cuda", default_plugins=False)
    assert host.config.graphs == "none"
    assert host.banner()[0].startswith("graphs are none and not full: --graphs full: no enabled plugin replays steps.")
    assert start("graphs", graphs="full", default_plugins=False).config.graphs == "full"


def test_automatic_graphs_leave_another_refusal_as_it_is(install: Install, start: Start) -> None:
    install("a", conflicts={"prefix_cache": "FAILS"})
    with pytest.raises(PluginError, match="a cannot run with prefix_cache"):
        start("a", device="cuda")


def test_a_default_plugin_that_fails_to_import_is_switched_off_with_its_reason(install: Install, start: Start) -> None:
    install("cpu", provides="kernel.cpu", plugin="raise OSError('no such library')")
    install("ngram")
    host = start("ngram")
    assert host.loaded_names == ("ngram",)
    assert "plugin cpu is switched off: plugin cpu (dist-cpu 1.0) failed to import" in host.banner()[1]
    with pytest.raises(PluginError, match="no such library"):
        start("cpu")


def test_a_default_plugin_that_does_not_fit_the_device_is_switched_off(install: Install, start: Start) -> None:
    compat = (
        "from specserve.declare import Provides\n"
        "CPU = Provides('on CPUs', lambda config: None if config.device == 'cpu' else 'the device is not a CPU')"
    )
    install("cpu", provides={"kernel.cpu": "CPU"}, compat=compat, plugin=KERNELS)
    assert start().loaded_names == ("cpu",)
    banner = start(device="cuda", graphs="none").banner()
    assert banner == ["plugin cpu is switched off: kernel.cpu: the device is not a CPU."]


def test_asking_for_a_plugin_and_excluding_it_is_refused(install: Install, start: Start) -> None:
    install("a")
    with pytest.raises(PluginError, match="asked for with --plugin and excluded"):
        start("a", no_plugins=("a",))


def test_a_misspelt_exclusion_is_refused_but_an_absent_plugin_may_be_excluded(install: Install, start: Start) -> None:
    install("cpu", provides="kernel.cpu", plugin=KERNELS)
    assert start(no_plugins=("somethingelse",)).loaded_names == ("cpu",)
    with pytest.raises(PluginError, match="did you mean 'cpu'"):
        start(no_plugins=("cpuu",))


def test_describe_lists_enabled_plugins_first_then_the_others(install: Install, start: Start) -> None:
    install("a")
    install("b", provides="lora.target", compatible={"draft.chain": "WORKS"})
    install("c", provides="draft.tree")
    entries = start("b", "a").describe()
    assert [(entry["name"], entry["enabled"]) for entry in entries] == [("b", True), ("a", True), ("c", False)]
    assert entries[0]["compatibility"] == [
        {"with": "a", "verdict": "compatible", "sentence": "b works with a: it works."}
    ]
    assert entries[0]["distribution"] == "dist-b"
