"""The hooks of graphs. torch is imported where steps are recorded: a start with --graphs none needs none of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import hookimpl

if TYPE_CHECKING:
    from specserve.api import EngineConfig
    from specserve.api.graphs import Runner, RunnerParts


@hookimpl
def make_runner(config: EngineConfig, parts: RunnerParts) -> Runner | None:
    if config.graphs == "none":
        return None
    from specserve_graphs.make_runner import make_graph_runner

    return make_graph_runner(config, parts)
