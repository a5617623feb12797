"""Hands the fuzzer's parts to an engine as in-process plugins."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from fuzz.parts.evil import Evil
from fuzz.parts.faulty import Faults, FaultyObserver, FaultyPlanner, FaultyProcessor
from fuzz.parts.guessing import Noisy, Oracle
from fuzz.parts.planning import Chaos
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.hookspecs import hookimpl
from specserve.protocols import DrafterNeeds
from specserve_workbench.testing.composers import everything

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fuzz.parts.processing import Processor
    from fuzz.plans import EnginePlan

OWN_DRAFTERS = ("oracle", "noisy", "evil")
DRAFTS = {"draft.chain": "a fuzzer's", "draft.tree": "a fuzzer's"}


class Hooks:
    """A plugin object whose hooks are given by name."""

    def __init__(self, **answers: Any) -> None:
        for hook, answer in answers.items():
            setattr(self, hook, answering(answer))


def answering(answer: Any) -> Any:
    return hookimpl(lambda: answer)


def in_process(name: str, provides: Mapping[str, str], **answers: Any) -> InProcessPlugin:
    """A plugin whose hooks return these, whatever they are asked."""
    return InProcessPlugin(Hooks(**answers), PluginDeclaration(name=name, provides=dict(provides)))


def make_drafter(name: str, plan: EnginePlan, futures: Mapping[str, Sequence[int]], vocab_size: int) -> Oracle:
    needs = DrafterNeeds(hidden_layers=plan.hidden_layers)
    rng = random.Random(f"{plan.seed}/{name}")
    if name == "oracle":
        return Oracle(futures, needs, rng)
    kind = {"noisy": Noisy, "evil": Evil}[name]
    return kind(futures, needs, rng, p=plan.noisy_p, vocab_size=vocab_size)


def drafter_plugins(drafters: Mapping[str, Oracle]) -> dict[str, InProcessPlugin]:
    return {name: in_process(name, DRAFTS, make_drafter=drafter) for name, drafter in drafters.items()}


def planner_plugin(plan: EnginePlan) -> dict[str, InProcessPlugin]:
    """Nothing where the engine's own planner plans."""
    if not plan.drafters or plan.planner == "adaptive" or (plan.planner == "own" and "planner" not in plan.faulty):
        return {}
    most, rng = plan.max_draft_tokens, random.Random(f"{plan.seed}/planner")
    planner: Any = everything(most) if plan.planner == "all" else Chaos(most, rng)
    if "planner" in plan.faulty:
        planner = FaultyPlanner(most, rng, Faults(rng))
    return {"planner": in_process("planner", {"planner.adaptive": "a fuzzer's"}, make_draft_planner=planner)}


def observer_plugin(plan: EnginePlan) -> dict[str, InProcessPlugin]:
    if "observer" not in plan.faulty:
        return {}
    observer = FaultyObserver(Faults(random.Random(f"{plan.seed}/observer")))
    return {"observer": in_process("observer", {"observer.metrics": "a fuzzer's"}, make_observer=observer)}


def make_processor(plan: EnginePlan) -> FaultyProcessor | None:
    """The one of the engine under test."""
    if plan.processor is None:
        return None
    rng = random.Random(f"{plan.seed}/processor")
    faults = Faults(rng) if "processor" in plan.faulty else None
    return FaultyProcessor(plan.processor, faults, essential=rng.random() < 0.5)


def processor_plugin(processor: Processor | None) -> dict[str, InProcessPlugin]:
    if processor is None:
        return {}
    provides = {"logits.processor": "a fuzzer's"}
    return {"processor": in_process("processor", provides, logits_processors=[processor])}
