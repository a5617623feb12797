"""An engine in the server's own process: its plugins are called directly."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, cast

import msgspec

from specserve.faults import BadAnswerError
from specserve.protocols import AnswerCheck
from specserve_checks.wrong_values import convert
from specserve_server.engine_answers import EngineState, ModelLookup
from specserve_server.engines.attached import AttachedEngine
from specserve_server.engines.plugin_application import PluginApplication
from specserve_server.engines.templated_engine import templated
from specserve_server.generation.time_limit import time_limited
from specserve_server.state.resolved_models import check_resolved_model, check_resolved_models
from specserve_server.templates.model_template import read_model_template

if TYPE_CHECKING:
    from specserve.protocols import ResolvedModel
    from specserve.types import GenerateRequest
    from specserve_server.config import ServerConfig
    from specserve_server.engine_client import EngineClient, LoadedEngine, ServedEngine


async def attach_in_process(engine: LoadedEngine, config: ServerConfig) -> AttachedEngine:
    """An engine whose template is wrong, or whose plugins' routes are, serves nothing: it is stopped."""
    try:
        template = await asyncio.to_thread(read_model_template, engine.tokenizer.path, config.chat_template)
        served = time_limited(templated(engine, template), config.request_timeout)
        routes = await PluginApplication.start(served)
    except BaseException:
        await engine.stop()
        raise
    return AttachedEngine(in_process_client(served), routes)


def in_process_client(engine: ServedEngine) -> EngineClient:
    return cast("EngineClient", InProcessClient(engine))


class InProcessClient:
    """What it does not define is the engine's own."""

    def __init__(self, engine: ServedEngine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    def resolve_model(self, name: str) -> ModelLookup:
        """The first plugin's result; the pins of others are released."""
        plugins = self._engine.plugins
        results, failed = plugins.try_collect("resolve_model", check_resolved_model, name=name)
        model: ResolvedModel | None = None
        for plugin, resolved in results:
            release = None
            if resolved.release is not None:
                release = plugins.guard(plugin, "release of a model", resolved.release)
            if model is None:
                model = msgspec.structs.replace(resolved, release=release)
            elif release is not None:
                release()
        return ModelLookup(model, failed)

    def list_models(self) -> list[ResolvedModel]:
        results, _ = self._engine.plugins.try_collect("list_models", check_resolved_models)
        return [model for _, models in results for model in models]

    def check_answer(self, request: GenerateRequest, text: str, finish_reason: str) -> list[AnswerCheck]:
        arguments = {"request": request, "text": text, "finish_reason": finish_reason}
        found, _ = self._engine.plugins.try_collect("check_answer", checked, **arguments)
        return [check for _, check in found]

    def read_state(self) -> EngineState:
        engine = self._engine
        observer_metrics = list(engine.observer_metrics())  # first: its faults are among the metrics
        plugins = list(engine.plugins.describe())
        return EngineState(
            engine.metrics,
            observer_metrics,
            engine.adapter_use(),
            engine.cache_info,
            engine.describe(),
            plugins,
            os.getpid(),
            engine.num_requests,
        )


def checked(result: object) -> AnswerCheck:
    if not isinstance(result, AnswerCheck):
        raise BadAnswerError("returned something else than an AnswerCheck")
    wrong = "returned an AnswerCheck with a wrong field: "
    return convert(msgspec.to_builtins(result), AnswerCheck, lambda found: BadAnswerError(f"{wrong}{found}"))
