"""Makes what runs the steps: the engine's own runner, or a plugin's."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from specserve.engine.roles import gave
from specserve.engine.size_cache import free_memory
from specserve.guards.graph_shape import reasons_against
from specserve.models.runner import Runner, RunnerParts
from specserve.plugins.interface_checks import check_extends, check_members

if TYPE_CHECKING:
    from specserve.config import EngineConfig
    from specserve.metrics import EngineMetrics
    from specserve.models.runner import StepParts
    from specserve.plugins.host import PluginHost
    from specserve.protocols import Recorder, Sampler


def make_runner(
    config: EngineConfig, host: PluginHost, step: StepParts, metrics: EngineMetrics, *, sampler: Sampler, drafts: bool
) -> Runner:
    """`drafts`: is a drafter enabled?"""
    parts = RunnerParts(
        step=step,
        sampler=sampler,
        generated="verify" if drafts else "decode",
        make_recorder=partial(make_recorder, config, host),
        declines=partial(reasons_against, host),
        free_memory=partial(free_memory, config.device),
        metrics=metrics,
    )
    answer: tuple[str, Runner] | None = host.single("make_runner", config=config, parts=parts)
    if answer is not None:
        owner, runner = answer
        check_extends(owner, gave("make_runner", runner), runner, Runner)
        return runner
    return Runner(step)


def make_recorder(config: EngineConfig, host: PluginHost) -> Recorder | None:
    """A plugin's, which records steps on the device."""
    answer: tuple[str, Recorder] | None = host.single("make_recorder", config=config, device=config.device)
    if answer is None:
        return None
    owner, recorder = answer
    check_members(
        owner, gave("make_recorder", recorder), recorder, "Recorder",
        attributes=("name", "calls_again", "num_bytes"), methods=("record",),
    )  # fmt: skip
    return recorder
