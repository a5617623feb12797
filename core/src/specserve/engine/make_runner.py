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
    from specserve.engine.components import Components
    from specserve.metrics import EngineMetrics
    from specserve.models.runner import StepParts
    from specserve.plugins.host import PluginHost
    from specserve.protocols import Recorder


def make_runner(c: Components, step: StepParts, metrics: EngineMetrics) -> Runner:
    config, host = c.config, c.host
    parts = RunnerParts(
        step=step,
        sampler=c.kernels.sampler,
        generated="verify" if c.drafters else "decode",
        make_recorder=partial(make_recorder, config, host),
        declines=partial(reasons_against, host),
        free_memory=partial(free_memory, config.device),
        metrics=metrics,
        cache=c.cache,
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
