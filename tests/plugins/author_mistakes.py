"""Plugins with one mistake each, and patterns of what is to be said of it."""

from __future__ import annotations

from typing import NamedTuple

DRAFTER = """
import msgspec
import torch
from specserve.api import Draft, Drafter, DrafterNeeds, DraftLayers, Metric, hookimpl

class Mine(Drafter):
    name = "mine"

    def propose(self, batch, output, verdict, limits):
        return [Draft(tokens=(1,)) if limit else None for limit in limits]

@hookimpl
def make_drafter():
    return Mine()
"""
OPTIONS = """
class Options(msgspec.Struct, frozen=True, kw_only=True):
    width: int

@hookimpl
def plugin_options():
    return Options
"""
OBSERVER = """
from specserve.api import Metric, hookimpl

class Watcher:
    def observe(self, batch, verdict):
        pass

    def metrics(self):
        return [Metric("watched", "Steps.", "counter", 1.0)]

@hookimpl
def make_observer():
    return Watcher()
"""
PROCESSOR = """
from specserve.api import LogitsProcessor, ProcessorState, hookimpl

class State(ProcessorState):
    def apply(self, logits, path):
        return logits

    def commit(self, tokens):
        pass

class Processor(LogitsProcessor):
    def start(self, request, vocab_size):
        return State()

@hookimpl
def logits_processors():
    return [Processor()]
"""
PLANNER = """
from specserve.api import DraftPlanner, hookimpl

class Planner(DraftPlanner):
    def limits(self, requests):
        return [0] * len(requests)

    def choose(self, requests, budget, base_rows):
        return [None] * len(requests)

@hookimpl
def make_draft_planner():
    return Planner()
"""
KERNELS = """
from specserve.api import hookimpl
from specserve.api.models import TorchKernels

class Kernels(TorchKernels):
    name = "mine"

    def prepare_linear(self, weight, bias):
        raise ValueError("too wide")

@hookimpl
def make_kernels():
    return Kernels()
"""
BACKEND = """
from specserve.api import BLOCK_SIZES, AttentionCapabilities, hookimpl

class Factory:
    name = "mine"
    capabilities = AttentionCapabilities(
        paged=False, tree_mask=True, ragged=True, row_invariant=True, block_sizes=BLOCK_SIZES, devices=("cpu",),
        dtypes=("float32", "bfloat16"),
    )

    def build(self, *arguments):
        raise RuntimeError("no memory of mine")

@hookimpl
def select_attention(needs):
    return Factory()
"""
HERE = r"fake_mine/plugin\.py:\d+"


class Mistake(NamedTuple):
    """`said`: patterns, in any order, of what is said. `kind`: what the plugin declares."""

    source: str
    said: tuple[str, ...]
    kind: str = "draft.chain"
    settings: tuple[str, ...] = ()


def drafter(old: str, new: str, *said: str, settings: tuple[str, ...] = ()) -> Mistake:
    assert old in DRAFTER
    return Mistake(DRAFTER.replace(old, new), said, settings=settings)


AT_START_UP = {
    "a misspelt hook": drafter(
        "make_drafter", "make_draftr", "mine implements 'make_draftr'", HERE, "did you mean 'make_drafter'", "Correct"
    ),
    "an argument that the hook does not have": drafter(
        "make_drafter()", "make_drafter(modl)", "hook make_drafter", HERE, "takes modl, which the engine does not pass",
        "did you mean 'model'", "any of model, config, options, by these names", r"\A(?![\s\S]*hookimpl definition)",
    ),
    "an async hook": drafter(
        "def make_drafter()", "async def make_drafter()", "hook make_drafter", HERE, "must not be async", "Write 'def'"
    ),
    "an async method": drafter(
        "def propose", "async def propose", "answers make_drafter", HERE, "propose must not be async", "Write 'def'"
    ),
    "an async generator": drafter(
        "@hookimpl", "    async def stop(self, request):\n        yield None\n\n@hookimpl",
        "method stop must not be async",
    ),
    "an async method of a planner that is optional": Mistake(
        PLANNER.replace("@hookimpl", "    def learn(self, *given):\n        pass\n\n"
            "    async def observe_drafting(self, *given):\n        pass\n\n@hookimpl"),
        ("method observe_drafting must not be async", HERE), "planner.adaptive",
    ),
    "no marker": drafter("@hookimpl\n", "", "defines make_drafter", HERE, "without the marker @hookimpl", "Add"),
    "raises when it is imported": drafter(
        "@hookimpl", "raise RuntimeError('no licence')\n@hookimpl", "failed to import", "RuntimeError: no licence", HERE
    ),
    "a syntax error": drafter("def make_drafter():", "def make_drafter()", "SyntaxError", HERE, "Repair"),
    "an unknown feature": Mistake(DRAFTER, ("'draft.chian' is not a known feature", "did you mean"), "draft.chian"),
    "a hook that raises": drafter(
        "return Mine()", "return {}['drafter']", "mine failed in its hook make_drafter: KeyError", HERE
    ),
    "an unknown option": Mistake(
        DRAFTER + OPTIONS.replace("int", "int = 4"),
        ("mine.widht is not an option", "did you mean 'width'", "width = 4"),
        settings=("mine.widht=3",),
    ),
    "an option without a default": Mistake(
        DRAFTER + OPTIONS, ("missing required field `width`", HERE, "a default in the plugin")
    ),
    "options without plugin_options": drafter(
        "make_drafter():\n    return", "make_drafter(options):\n    options.width\n    return",
        "failed in its hook make_drafter: AttributeError", HERE, "has no hook plugin_options", "add the hook",
    ),
    "a class in place of a drafter": drafter(
        "return Mine()", "return Mine", "answers make_drafter", HERE, "the class Mine itself", "an instance of it"
    ),
    "a drafter without its base class": drafter(
        "class Mine(Drafter):", "class Mine:", "answers make_drafter with a Mine", HERE, "does not extend",
        "specserve.api.Drafter",
    ),
    "a drafter without a name": drafter(
        '    name = "mine"\n', "", "answers make_drafter with a Mine", HERE, "lacks name", "specserve.api.Drafter"
    ),
    "a drafter without propose": drafter(
        "def propose", "def suggest", "failed in its hook make_drafter: TypeError", HERE, "propose"
    ),
    "a planner without choose": Mistake(
        PLANNER.replace("def choose", "def chose"),
        ("failed in its hook make_draft_planner: TypeError", HERE, "choose"), "planner.adaptive",
    ),
    "processors that are not iterable": Mistake(
        PROCESSOR.replace("[Processor()]", "Processor()"),
        ("mine: what logits_processors returns must be a list", "got Processor", HERE),
        "logits.processor",
    ),
    "an observer without metrics": Mistake(
        OBSERVER.replace("def metrics", "def metric"),
        ("answers make_observer with a Watcher", HERE, "lacks metrics"),
        "observer.metrics",
    ),
    "an observer without observe, which may be None for metrics alone": Mistake(
        OBSERVER.replace("def observe", "def observes"),
        ("answers make_observer with a Watcher", HERE, "lacks observe"),
        "observer.metrics",
    ),
    "an unknown kind of metric": Mistake(
        OBSERVER.replace('"counter"', '"histogram"'),
        ("mine: its observer gave a metric of a kind that is none of counter, gauge", HERE, "specserve.api.Metric"),
        "observer.metrics",
    ),
    "a drafter that does not know what to do with its layers": drafter(
        "    def propose",
        "    needs = DrafterNeeds(layers=DraftLayers(\n"
        "        num_heads=2, num_kv_heads=1, head_dim=8, scale=0.3, sliding_windows=(None,), reads_hidden=False,\n"
        "        has_trees=False, max_draft_rows=4, max_len=64))\n\n"
        "    def connect(self, resources):\n        self.passes = resources.draft_pass(None)\n\n    def propose",
        "plugin mine raised AttributeError", HERE, "while the engine was built", "no-plugin mine",
    ),
    "a planner that raises when it says what it knows": Mistake(
        PLANNER.replace("@hookimpl", "    @property\n    def costs(self):\n        return {}['costs']\n\n@hookimpl"),
        ("plugin mine raised KeyError", HERE, "while the engine was built"), "planner.adaptive",
    ),
    "kernels that raise when they pack": Mistake(
        KERNELS, ("plugin mine raised ValueError: too wide", HERE, "while the engine was built"), "kernel.cpu",
    ),
    "a backend that raises when it is built": Mistake(
        BACKEND, ("plugin mine raised RuntimeError: no memory of mine", HERE, "while the engine was built"),
        "attention.hybrid",
    ),
}  # fmt: skip
WHILE_SERVING = {
    "a wrong number of drafts": drafter(
        "return [Draft",
        "return [] and [Draft",
        "drafter mine: wrong number",
        HERE,
        "0 for . spans; propose returns a Draft or None for each",
    ),
    "no drafts at all": drafter(
        "return [Draft",
        "return None and [Draft",
        "drafter mine: no list of drafts",
        HERE,
        "NoneType; propose returns a",
    ),
    "a token that is none": drafter(
        "tokens=(1,)", "tokens=('1',)", "drafter mine: token out of range", HERE, "a token is an int from 0 to 319"
    ),
    "propose raises": drafter("return [Draft", "limits['a']; return [Draft", "drafter mine: raised TypeError", HERE),
    "an observer that raises": Mistake(
        OBSERVER.replace("        pass", "        batch.nothing", 1),
        ("plugin mine: its observer raised AttributeError", HERE, "it is left out"),
        "observer.metrics",
    ),
    "a processor that returns nothing": Mistake(
        PROCESSOR.replace("return logits", "pass", 1),
        (
            "plugin mine: its logits processor returned something else than the row of logits",
            HERE,
            "NoneType; return a tensor",
        ),
        "logits.processor",
    ),
}
