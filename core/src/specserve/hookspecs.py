"""Every hook that a plugin may implement, as pluggy specifications.

No hook is `firstresult`: the core collects all answers, and a role that only one can own refuses start-up
when two answer. Most are called once, at start-up, and return objects whose plain methods the step loop calls; those
that are called per request say so. An implementation may take fewer arguments than the specification. No
torch is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import msgspec

    from specserve.config import EngineConfig
    from specserve.protocols import (
        AdaptableModel,
        AttentionFactory,
        AttentionNeeds,
        Drafter,
        DraftPlanner,
        KernelSet,
        LogitsProcessor,
        LoraPlanner,
        Observer,
        ResolvedModel,
        Verifier,
    )
    from specserve.types import GenerateRequest

PROJECT = "specserve"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def plugin_options() -> type[msgspec.Struct]:  # type: ignore[empty-body]
    """The plugin's options: a frozen, keyword-only msgspec Struct whose defaults make it start."""


@hookspec
def make_kernels(config: EngineConfig, options: Any, device: str, dtype: str) -> KernelSet | None:
    """A kernel set for this device and dtype, or None when the plugin has none that fits."""


@hookspec
def attention_backends(config: EngineConfig, options: Any) -> Iterable[AttentionFactory]:  # type: ignore[empty-body]
    """Attention backends, each with its capabilities."""


@hookspec
def select_attention(
    config: EngineConfig, options: Any, available: Mapping[str, AttentionFactory], needs: AttentionNeeds
) -> AttentionFactory | None:
    """The backend that serves: one of `available`, or one composed of them; None leaves the choice to the core."""


@hookspec
def adapt_model(model: AdaptableModel, config: EngineConfig, options: Any) -> None:
    """Add deltas to projections, or set their kernel, after the weights are loaded."""


@hookspec
def make_lora_planner(config: EngineConfig, options: Any) -> LoraPlanner | None:
    """What finds the segment of each adapter in a batch, or None."""


@hookspec
def make_drafter(model: AdaptableModel, config: EngineConfig, options: Any) -> Drafter | None:
    """A drafter, or None."""


@hookspec
def make_draft_planner(config: EngineConfig, options: Any) -> DraftPlanner | None:
    """A planner in place of the default one, or None."""


@hookspec
def make_verifier(config: EngineConfig, options: Any) -> Verifier | None:
    """A verifier in place of the drafter-invariant one, or None. One with `lossless = False` is reported as lossy."""


@hookspec
def logits_processors(config: EngineConfig, options: Any) -> Iterable[LogitsProcessor]:  # type: ignore[empty-body]
    """Processors that run after the core's own, in the order in which the plugins are enabled."""


@hookspec
def resolve_model(name: str) -> ResolvedModel | None:
    """What a request's `model` names, pinned until the request ends; None when this plugin does not know it."""


@hookspec
def list_models() -> Iterable[ResolvedModel]:  # type: ignore[empty-body]
    """The models that this plugin adds to /v1/models."""


@hookspec
def check_request(request: GenerateRequest) -> None:
    """Raise a `RequestError` for a request that this plugin could not serve."""


@hookspec
def decline_graph(tokens: int, requests: int, widest: int) -> str | None:
    """Why a batch of this shape must not be captured or replayed, or None."""


@hookspec
def make_observer(config: EngineConfig, options: Any) -> Observer | None:
    """An object that learns and counts after commit, or None."""


@hookspec
def add_routes(app: Any, engine: Any, options: Any) -> None:
    """Add REST routes to the aiohttp application at server start."""
