"""The hook specifications: every hook that a plugin may implement.

No hook is `firstresult`: the core collects all results, and start-up refuses two plugins in a role with one owner. Most
hooks are called once, at start-up, and return objects whose methods the engine calls; `resolve_model`, `list_models`,
`check_request` and `check_answer` are called while requests are served. A hook implementation may take fewer arguments
than its specification. Imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pluggy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import msgspec
    from aiohttp import web

    from specserve.config import EngineConfig
    from specserve.models.family import ModelFamily
    from specserve.models.library import ModelLibrary
    from specserve.models.part import ModelPart
    from specserve.models.runner import Runner, RunnerParts
    from specserve.models.weight_format import WeightFormat
    from specserve.protocols import (
        AdaptableModel,
        AnswerCheck,
        AttentionFactory,
        AttentionNeeds,
        CacheObserver,
        Drafter,
        DraftPlanner,
        GraphShape,
        KernelSet,
        LogitsProcessor,
        LoraPlanner,
        MetricsSource,
        Observer,
        OutputObserver,
        PlanningRuntime,
        Recorder,
        ResolvedModel,
        Verifier,
    )
    from specserve.types import GenerateRequest

PROJECT = "specserve"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

PluginOptions: TypeAlias = "msgspec.Struct | None"
"""An instance of the Struct that the same plugin returns from `plugin_options`; None where it has no such hook."""


@hookspec
def plugin_options() -> type[msgspec.Struct]:  # type: ignore[empty-body]
    """The type of the plugin's options: a frozen, keyword-only msgspec Struct with defaults."""


@hookspec
def model_families(config: EngineConfig, options: PluginOptions) -> Iterable[ModelFamily]:  # type: ignore[empty-body]
    """Families of models that can be served besides the engine's own."""


@hookspec
def model_libraries(config: EngineConfig, options: PluginOptions) -> Iterable[ModelLibrary]:  # type: ignore[empty-body]
    """Libraries that compute whole models, in place of a family."""


@hookspec
def weight_formats(config: EngineConfig, options: PluginOptions) -> Iterable[WeightFormat]:  # type: ignore[empty-body]
    """Formats of weights that can be read besides the engine's own."""


@hookspec
def make_model_part(config: EngineConfig, options: PluginOptions) -> ModelPart | None:
    """The part of the model that this process computes, or None: all of it."""


@hookspec
def make_kernels(config: EngineConfig, options: PluginOptions, device: str, dtype: str) -> KernelSet | None:
    """A kernel set for this device and dtype, or None where the plugin has none."""


@hookspec
def attention_backends(config: EngineConfig, options: PluginOptions) -> Iterable[AttentionFactory]:  # type: ignore[empty-body]
    """Factories of attention backends, each with its capabilities."""


@hookspec
def select_attention(
    config: EngineConfig, options: PluginOptions, available: Mapping[str, AttentionFactory], needs: AttentionNeeds
) -> AttentionFactory | None:
    """The backend that serves: one of `available`, or one composed of them; None leaves the choice to the core."""


@hookspec
def adapt_model(model: AdaptableModel, config: EngineConfig, options: PluginOptions) -> None:
    """Add deltas to projections, or set their kernel, after the weights are loaded."""


@hookspec
def make_lora_planner(config: EngineConfig, options: PluginOptions) -> LoraPlanner | None:
    """A planner that finds the segment of each adapter in a batch, or None."""


@hookspec
def make_drafter(model: AdaptableModel, config: EngineConfig, options: PluginOptions) -> Drafter | None:
    """A drafter, or None."""


@hookspec
def make_draft_planner(config: EngineConfig, options: PluginOptions, runtime: PlanningRuntime) -> DraftPlanner | None:
    """A planner in place of the engine's own, or None. `runtime`: what it may measure."""


@hookspec
def make_verifier(config: EngineConfig, options: PluginOptions) -> Verifier | None:
    """A verifier in place of the drafter-invariant one, or None. One with `lossless = False` is reported as lossy."""


@hookspec
def logits_processors(config: EngineConfig, options: PluginOptions) -> Iterable[LogitsProcessor]:  # type: ignore[empty-body]
    """Processors that run after the core's own, in the order in which the plugins are enabled."""


@hookspec
def resolve_model(name: str) -> ResolvedModel | None:
    """The model that a request names, pinned until the request ends; None where this plugin does not know the name."""


@hookspec
def list_models() -> Iterable[ResolvedModel]:  # type: ignore[empty-body]
    """The models that this plugin adds to /v1/models."""


@hookspec
def check_request(request: GenerateRequest) -> None:
    """Raise a `RequestError` for a request that this plugin cannot serve."""


@hookspec
def check_answer(request: GenerateRequest, text: str, finish_reason: str) -> AnswerCheck | None:
    """Whether an ended answer has the form that was asked for; None where all of the form was enforced."""


@hookspec
def decline_graph(shape: GraphShape) -> str | None:
    """Why a step of this shape must not be replayed from a graph, or None. Asked once for each shape."""


@hookspec
def make_runner(config: EngineConfig, options: PluginOptions, parts: RunnerParts) -> Runner | None:
    """What runs the steps in place of the engine's own runner, or None."""


@hookspec
def make_recorder(config: EngineConfig, options: PluginOptions, device: str) -> Recorder | None:
    """What records steps on this device, to be replayed; or None where the plugin has none."""


@hookspec
def make_observer(config: EngineConfig, options: PluginOptions) -> Observer | OutputObserver | MetricsSource | None:
    """An observer of the committed steps, or None."""


@hookspec
def make_cache_observer(config: EngineConfig, options: PluginOptions) -> CacheObserver | None:
    """An observer of the prefix cache, which is told the blocks that it knows, or None."""


@hookspec
def add_routes(app: web.Application, engine: Any, options: PluginOptions) -> None:
    """Add REST routes to the application. `engine` is a `specserve_server.engine_client.ServedEngine`."""
