"""What a process needs that computes forward passes for an engine in another process, and has no requests.

It loads the same model by the same plugins, as far as they decide how a step is computed; its part of the model knows
the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from specserve.batch.builder import BatchBuilder
from specserve.engine.components import load_components
from specserve.load_progress import not_shown
from specserve.models.runner import Runner, StepParts
from specserve.plugins.discovery import discover
from specserve.plugins.host import InProcessPlugin, PluginHost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.config import EngineConfig
    from specserve.kv.cache import KVCache
    from specserve.models.served_model import ServedModel

COMPUTE = ("kernel", "model", "attention")
"""Namespaces of the features that decide how a step is computed."""


class Worker(NamedTuple):
    """`arithmetic`: names of the kernels and the attention backend, which are those of the engine."""

    model: ServedModel
    cache: KVCache
    builder: BatchBuilder
    runner: Runner
    arithmetic: tuple[str, str]


def load_worker(config: EngineConfig, extra: Mapping[str, InProcessPlugin]) -> Worker:
    """config: the engine's, resolved. extra: the plugin that gives this process its part of the model. Raises
    ConfigError and its kind."""
    compute = [
        name
        for name, plugin in discover().items()
        if any(token.partition(".")[0] in COMPUTE for token in plugin.provides)
    ]
    config = msgspec.structs.replace(
        config,
        plugins=tuple(name for name in config.plugins if name in compute),
        plugin_options={name: table for name, table in config.plugin_options.items() if name in (*compute, *extra)},
        allow_undeclared=True,
    )
    c = load_components(config, PluginHost.start(config, extra), not_shown)
    kernels, backend = c.kernels.kernels, c.attention.backend
    builder = BatchBuilder(c.config.block_size, c.device)
    return Worker(c.model, c.cache, builder, Runner(StepParts(c.model, kernels, backend)), (kernels.name, backend.name))
