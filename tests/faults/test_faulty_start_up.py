"""What a plugin's hook raises or returns at start-up is refused by name there, and never found out by a request."""

from __future__ import annotations

import pytest
from faulty import ERRORS, RUBBISH, in_process, raising_generator
from parts import NoAdapters, Quiet

from specserve.errors import ConfigError, PluginError
from specserve.protocols import LoraPlanner, Metric
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import toy_request

HOOKS = (
    "plugin_options", "make_kernels", "attention_backends", "select_attention", "adapt_model", "make_drafter",
    "make_draft_planner", "make_verifier", "logits_processors", "make_observer", "make_lora_planner", "make_runner",
    "make_recorder", "make_cache_observer",
)  # fmt: skip


def start(toy_model, **hooks):
    graphs = "piecewise" if "make_recorder" in hooks else "none"
    extra = in_process("faulty", **hooks)
    return make_engine(toy_model, extra=extra, allow_undeclared=True, graphs=graphs).engine


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_raises_stops_start_up_and_is_named(toy_model, hook):
    for error in ERRORS:

        def raising(error=error):
            raise error

        with pytest.raises(PluginError, match=f"plugin faulty failed in its hook {hook}: {type(error).__name__}"):
            start(toy_model, **{hook: raising})


@pytest.mark.parametrize("kind", RUBBISH)
@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_returns_rubbish_is_refused_or_says_nothing(toy_model, hook, kind):
    """None is no opinion and `adapt_model` returns nothing; an empty list of processors or backends is one, too."""

    def answer():
        return raising_generator() if kind == "a generator that raises" else RUBBISH[kind]

    fine = kind == "none" or hook == "adapt_model"
    fine = fine or (kind == "an empty list" and hook in ("logits_processors", "attention_backends"))
    if not fine:
        with pytest.raises(ConfigError, match="faulty"):
            start(toy_model, **{hook: answer})
        return
    request = toy_request("a", (1, 2, 3))
    served = run_requests(start(toy_model, **{hook: answer}), [request])
    assert served.decided() == run_requests(make_engine(toy_model).engine, [request]).decided()


class NoBase:
    def limits(self, requests):
        return [0] * len(requests)

    def choose(self, requests, budget, base_rows):
        return [None] * len(requests)


class VaguePlanner(LoraPlanner):
    max_adapters = "many"

    def plan(self, batch):
        return None


class WithoutMetrics:
    def observe(self, batch, verdict):
        pass


class Telling(Quiet):
    def __init__(self, *metrics):
        self.told = metrics

    def metrics(self):
        return self.told


def drafter_with(**attributes):
    drafter = OracleDrafter({}, 1)
    for name, value in attributes.items():
        setattr(drafter, name, value)
    return drafter


class Backend:
    name = "faulty's"
    capabilities = "many"

    def build(self, *arguments):
        pass


PARTIAL = {
    "a planner without its base class": (
        "make_draft_planner", lambda: NoBase(), "is no DraftPlanner: its class does not extend specserve.api.D",
    ),
    "a LoRA planner without its base class": (
        "make_lora_planner", lambda: NoBase(), "is no LoraPlanner: its class does not extend specserve.api.LoraP",
    ),
    "a LoRA planner's limit": (
        "make_lora_planner", lambda: VaguePlanner(), "max_adapters must be a int; got str 'many'",
    ),
    "an observer without metrics": ("make_observer", lambda: WithoutMetrics(), "is no Observer: it lacks metrics"),
    "an unknown kind": ("make_observer", lambda: Telling(Metric("a", "b", "summary", 1.0)), "none of counter, gauge"),
    "a bad name": ("make_observer", lambda: Telling(Metric("a b", "b", "gauge", 1.0)), "a name that Prometheus does"),
    "no number": ("make_observer", lambda: Telling(Metric("a", "b", "gauge", "1")), "whose value is no number"),
    "labels": ("make_observer", lambda: Telling(Metric("a", "b", "gauge", 1.0, (("x", 1),))), "no pairs of texts"),
    "a label twice": (
        "make_observer", lambda: Telling(Metric("a", "b", "gauge", 1.0, (("x", "1"), ("x", "2")))), "same one twice",
    ),
    "no metric": ("make_observer", lambda: Telling(("a", "b", "gauge", 1.0)), "no specserve.api.Metric"),
    "processors that are one": ("logits_processors", lambda: NoBase(), "must be a list of them"),
    "a processor without its base class": (
        "logits_processors", lambda: [NoBase()], "no LogitsProcessor: its class does not extend specserve.api.Lo",
    ),
    "needs of another kind": ("make_drafter", lambda: drafter_with(needs={}), "must be a specserve.api.DrafterN"),
    "a name that is none": ("make_drafter", lambda: drafter_with(name=3), "drafter's name must be a str; got int 3"),
    "a method that is none": ("make_drafter", lambda: drafter_with(propose=3), "whose propose is a int, and cannot be"),
    "capabilities": ("attention_backends", lambda: [Backend()], "must be a specserve.api.AttentionCapabilities"),
}  # fmt: skip


@pytest.mark.parametrize("what", PARTIAL)
def test_what_lacks_a_part_of_its_interface_is_refused_with_what_it_lacks(toy_model, what):
    hook, make, message = PARTIAL[what]
    with pytest.raises(PluginError, match=f"faulty.*{message}"):
        start(toy_model, **{hook: make})


def test_two_lora_planners_are_refused(toy_model):
    first, second = (in_process(name, make_lora_planner=lambda: NoAdapters()) for name in ("first", "second"))
    with pytest.raises(PluginError, match="first and second both answer make_lora_planner"):
        make_engine(toy_model, extra=first | second, allow_undeclared=True)


def test_a_fault_of_the_core_is_blamed_on_no_plugin(toy_model, monkeypatch):
    def fails(*_):
        raise RuntimeError("the core's own")

    monkeypatch.setattr("specserve.engine.assembly.make_lora_planner", fails)
    with pytest.raises(RuntimeError, match=r"^the core's own$"):
        make_engine(toy_model, plugins=("cpu", "ngram"))
