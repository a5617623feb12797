"""docs/plugins/contract.md: the order of a step's calls and their threads; reference.md is what the code says."""

from __future__ import annotations

import inspect
import re
import runpy
import threading
from pathlib import Path

from doc_examples import PAGES

from specserve import protocols, types
from specserve.config import EngineConfig
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.engine.async_engine import AsyncEngine
from specserve.hookspecs import hookimpl
from specserve.protocols import Drafter, DraftPlanner, LogitsProcessor, LoraPlanner, ProcessorState
from specserve.types import Draft
from specserve_workbench.testing.engines import DEFAULTS, make_engine, run_requests
from specserve_workbench.testing.requests import toy_request

REFERENCE = PAGES / "reference.md"
TOOL = Path(__file__).parents[2] / "tools" / "plugin_reference.py"


class Everything(Drafter, DraftPlanner, LoraPlanner):
    """A plugin with parts of many kinds, each of which notes its calls."""

    name = "everything"

    def __init__(self, width=2):
        self.calls, self.threads, self.width = [], {}, width

    def note(self, call):
        self.calls.append(call)
        self.threads.setdefault(call, set()).add(threading.current_thread().name)

    @hookimpl
    def make_drafter(self):
        return self

    make_draft_planner = make_observer = make_lora_planner = make_drafter

    @hookimpl
    def logits_processors(self):
        return [Processor(self)]

    @hookimpl
    def check_request(self, request):
        self.note("check_request")

    def start(self, request):
        self.note("drafter starts")

    def stop(self, request):
        self.note("drafter stops")

    def propose(self, batch, output, verdict, limits):
        self.note("propose")
        return [Draft(tokens=(7,)) if limit else None for limit in limits]

    def limits(self, requests):
        self.note("limits")
        return [self.width] * len(requests)

    def choose(self, requests, budget, base_rows):
        self.note("choose")
        return [1 if request.draft else 0 for request in requests]

    def learn(self, batch, verdict, seconds):
        self.note("learn")

    def observe_drafting(self, seconds, num_requests, pass_seconds):
        self.note("observe_drafting")

    def plan(self, batch):
        self.note("plan")

    def observe(self, batch, verdict):
        self.note("observe")

    def metrics(self):
        self.note("metrics")
        return []


class Processor(LogitsProcessor, ProcessorState):
    def __init__(self, everything):
        self.note = everything.note

    def start(self, request, vocab_size):
        self.note("processor starts")
        return self

    def apply(self, logits, path):
        self.note("apply")
        return logits

    def commit(self, tokens):
        self.note("commit")


def plugin(everything):
    provides = dict.fromkeys(
        ("draft.chain", "planner.adaptive", "observer.metrics", "lora.target", "logits.processor"), "all of it"
    )
    return {"everything": InProcessPlugin(everything, PluginDeclaration(name="everything", provides=provides))}


def test_a_step_calls_in_the_order_of_the_page(toy_model):
    everything = Everything()
    engine = make_engine(toy_model, extra=plugin(everything)).engine
    assert everything.calls == ["metrics"]
    everything.calls.clear()
    run_requests(engine, [toy_request("a", (1, 2, 3), max_tokens=4, ignore_eos=True)])
    computed = ["plan", "apply", "commit"]
    steps = [
        ["check_request", "processor starts", "drafter starts"],
        [*computed, "observe", "limits", "propose", "learn"],  # with a prompt: what drafting takes is not observed
        ["choose", *computed, "observe", "limits", "propose", "observe_drafting", "learn"],
        ["choose", *computed, "observe", "limits", "learn"],  # no draft for the last token
        [*computed, "drafter stops", "observe", "limits", "learn"],
    ]
    assert everything.calls == [call for step in steps for call in step]


def test_a_drafter_is_not_called_where_nobody_wants_a_draft(toy_model):
    everything = Everything(width=0)
    run_requests(make_engine(toy_model, extra=plugin(everything)).engine, [toy_request("a", (1, 2, 3))])
    assert "propose" not in everything.calls
    assert "choose" not in everything.calls
    assert everything.calls.count("observe") == 16


async def test_all_of_a_step_is_called_in_the_step_thread(toy_model):
    everything = Everything()
    config = EngineConfig(model=str(toy_model), plugins=("everything",), **DEFAULTS)
    engine = await AsyncEngine.start(config, extra=plugin(everything))
    everything.threads.clear()
    async for _ in engine.submit(toy_request("a", (1, 2, 3))):
        pass
    list(engine.observer_metrics())
    await engine.stop()
    here = threading.current_thread().name
    assert everything.threads.pop("metrics") == {here}
    everything.threads.pop("check_request", None)
    assert set(map(frozenset, everything.threads.values())) == {frozenset({"specserve-step"})}
    assert len(everything.threads) == 12


def test_the_reference_is_up_to_date():
    page = runpy.run_path(str(TOOL))["page"]
    assert page() == REFERENCE.read_text(), "make pages"


def test_every_name_of_the_interface_has_a_heading_and_every_method_a_text():
    text = REFERENCE.read_text()
    headings = set(re.findall(r"^### `(\w+)`$", text, re.MULTILINE))
    public = {
        name for name, thing in vars(types).items() if inspect.isclass(thing) and thing.__module__ == types.__name__
    }
    assert {*protocols.__all__} | public | {"Batch", "Span", "Request", "LoraPlan", "Segment"} <= headings
    parts = re.split(r"(?m)^(?=####? )", text)
    assert [part.splitlines()[0] for part in parts if part.startswith("####") and len(part.split("\n\n")) < 2] == []
