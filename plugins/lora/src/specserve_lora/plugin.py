"""The hooks of lora. One instance per engine: its deltas, planner, models and routes share a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specserve.api import ConfigError, RequestError, ResolvedModel, hookimpl, parse_bytes
from specserve.api.files import find_root
from specserve_lora.adapter import AdapterReader
from specserve_lora.adapter_dir import ROOT, unconfined_dir
from specserve_lora.deltas import add_deltas
from specserve_lora.eviction import CacheLimits
from specserve_lora.modules import modules_of
from specserve_lora.observer import LoraObserver
from specserve_lora.options import LoraOptions
from specserve_lora.pins import Pin
from specserve_lora.planning import SegmentPlanner, check_adapter
from specserve_lora.store import AdapterStore

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp import web

    from specserve.api import AdaptableModel, EngineConfig, GenerateRequest
    from specserve_server.engine_client import ServedEngine


@dataclass(slots=True, frozen=True)
class SharedState:
    """What the hooks share."""

    store: AdapterStore
    root: Path | None


class LoraPlugin:
    def __init__(self) -> None:
        self.state: SharedState | None = None
        """Made by `adapt_model`, which start-up calls before the hooks that use them."""

    @property
    def store(self) -> AdapterStore:
        assert self.state is not None, "adapt_model is called first"
        return self.state.store

    @hookimpl
    def plugin_options(self) -> type[LoraOptions]:
        return LoraOptions

    @hookimpl
    def adapt_model(self, model: AdaptableModel, config: EngineConfig, options: LoraOptions) -> None:
        store = make_store(model, config, options)
        self.state = SharedState(store, find_root(ROOT, options.root))
        add_deltas(model)
        load_configured(store, options.adapters)

    @hookimpl
    def resolve_model(self, name: str) -> ResolvedModel | None:
        loaded = self.store.pin(name)
        return None if loaded is None else ResolvedModel(name, None, loaded.id, Pin(self.store, loaded).release)

    @hookimpl
    def list_models(self) -> list[ResolvedModel]:
        return [ResolvedModel(name, None, id) for name, id in self.store.names().items()]

    @hookimpl
    def check_request(self, request: GenerateRequest) -> None:
        check_adapter(request.adapter, self.store.find)

    @hookimpl
    def make_lora_planner(self) -> SegmentPlanner:
        return SegmentPlanner(self.store.find, self.store.limits.max_loaded)

    @hookimpl
    def make_observer(self) -> LoraObserver:
        return LoraObserver(self.store)

    @hookimpl
    def add_routes(self, app: web.Application, engine: ServedEngine) -> None:
        from specserve_lora.routes import AdapterRoutes  # imports aiohttp, which `specserve generate` does not need

        assert self.state is not None
        AdapterRoutes(self.state.store, self.state.root, engine).add_to(app)


def make_store(model: AdaptableModel, config: EngineConfig, options: LoraOptions) -> AdapterStore:
    weight = next(iter(model.projections.values())).weight
    max_memory = parse_bytes(options.max_memory)
    reader = AdapterReader(modules_of(model.projections), weight.dtype, weight.device, options.max_rank, max_memory)
    return AdapterStore(
        reader.read,
        model.pack_adapter,
        model.free_adapter,
        limits=CacheLimits(options.max_loaded, max_memory),
        base_name=config.model,
    )


def load_configured(store: AdapterStore, adapters: dict[str, str]) -> None:
    """Each is read and checked; beyond the limits, the first ones are evicted again. ConfigError for a bad one."""
    for name, path in adapters.items():
        try:
            store.load(name, unconfined_dir(path))
        except RequestError as error:
            raise ConfigError(f"lora.adapters.{name}: {error}") from None
