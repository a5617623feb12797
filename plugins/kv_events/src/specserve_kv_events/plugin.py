"""kv_events' hooks. There is one instance per engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import hookimpl
from specserve_kv_events.observers import PublisherMetrics, PublishingObserver
from specserve_kv_events.options import KvEventsOptions
from specserve_kv_events.publisher import Publisher
from specserve_kv_events.sockets import open_sockets
from specserve_kv_events.wire import make_writer

if TYPE_CHECKING:
    from aiohttp import web

    from specserve.api import EngineConfig


class KvEvents:
    def __init__(self) -> None:
        self.publisher: Publisher | None = None
        """Set by `make_cache_observer`, which start-up calls before the hooks that use it."""

    @hookimpl
    def plugin_options(self) -> type[KvEventsOptions]:
        return KvEventsOptions

    @hookimpl
    def make_cache_observer(self, config: EngineConfig, options: KvEventsOptions) -> PublishingObserver:
        writer = make_writer(options.encoding, config.block_size)
        self.publisher = Publisher(open_sockets(options), writer, options.topic, options.buffer)
        return PublishingObserver(self.publisher)

    @hookimpl
    def make_observer(self) -> PublisherMetrics:
        assert self.publisher is not None
        return PublisherMetrics(self.publisher)

    @hookimpl
    def add_routes(self, app: web.Application, options: KvEventsOptions) -> None:
        from specserve_kv_events.routes import SourceRoute  # aiohttp: not for `specserve generate`

        assert self.publisher is not None
        SourceRoute(self.publisher.sockets, options).add_to(app)
