"""GET /metrics: the engine's metrics, those of plugins' observers and of the process, in Prometheus text or in
OpenMetrics.

Reads plain metrics when it is scraped; counts nothing itself. No global registry.
"""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from typing import TYPE_CHECKING, get_args

from aiohttp import web
from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR, CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from specserve.types import FinishReason
from specserve_server.operations.loads import hit_rate
from specserve_server.operations.metric_families import EngineFamilies, disabled_gauge, observer_families
from specserve_server.operations.metric_names import COUNTERS, COUNTERS_BY_DRAFTER, GAUGES, HISTOGRAMS, TOKEN_HISTOGRAMS
from specserve_server.state.response_counts import Answered
from specserve_server.state.server_state import loaded_engine, served_model_names, state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric as MetricFamily

    from specserve.metrics import EngineMetrics
    from specserve_server.engine_answers import EngineState
    from specserve_server.state.server_state import ServerState


class EngineCollector(Collector):
    """Turns what an engine and its server tell into families, once."""

    def __init__(self, state: EngineState, max_model_len: int, server: ServerState, model: str) -> None:
        self.state, self.max_model_len = state, max_model_len
        self.groups, self.responses, self.make = server.groups, server.responses, EngineFamilies(model)

    def collect(self) -> Iterator[MetricFamily]:
        metrics, make = self.state.metrics, self.make
        for name, (field, help) in GAUGES.items():
            yield make.gauge(name, help, getattr(metrics, field))
        yield make.gauge("vllm:gpu_prefix_cache_hit_rate", "Share of hits among queries", hit_rate(metrics))
        for name, (field, help) in COUNTERS.items():
            yield make.counter(name, help, (), [((), getattr(metrics, field))])
        for name, (field, help) in HISTOGRAMS.items():
            yield make.histogram(name, help, getattr(metrics, field))
        yield from self.of_requests(metrics)
        yield from self.of_speculation(metrics)
        yield from self.of_faults(metrics)
        yield from self.of_graphs(metrics)
        answers, labels = list(self.responses.counts.items()), Answered._fields
        yield make.counter("specserve_http_responses", "Answers by method, route and status", labels, answers)
        yield from self.infos()
        yield from observer_families(self.state.observer_metrics)

    def of_requests(self, metrics: EngineMetrics) -> Iterator[MetricFamily]:
        make, most = self.make, self.max_model_len
        success = [((reason,), metrics.request_success[reason]) for reason in get_args(FinishReason)]
        yield make.counter("vllm:request_success", "Requests ended, by reason", ("finished_reason",), success)
        for name, (field, help) in TOKEN_HISTOGRAMS.items():
            yield make.histogram(name, help, getattr(metrics, field), most)
        longest = self.groups.max_num_generation_tokens
        help = "Tokens generated for the longest choice of a prompt"
        yield make.histogram("vllm:request_max_num_generation_tokens", help, longest, most)
        yield make.histogram("vllm:request_params_n", "The parameter n, by prompt", self.groups.n)

    def of_speculation(self, metrics: EngineMetrics) -> Iterator[MetricFamily]:
        # The step thread may add a key meanwhile: copy before iterating.
        accepted = metrics.accepted_per_position.copy()
        positions = [((str(depth),), accepted[depth]) for depth in range(max(accepted, default=0) + 1)]
        name, help = "vllm:spec_decode_num_accepted_tokens_per_pos", "Accepted draft tokens by depth"
        yield self.make.counter(name, help, ("position",), positions)
        for name, (field, help) in COUNTERS_BY_DRAFTER.items():
            counts = [((drafter,), count) for drafter, count in list(getattr(metrics, field).items())]
            yield self.make.counter(name, help, ("drafter",), counts)

    def of_faults(self, metrics: EngineMetrics) -> Iterator[MetricFamily]:
        faults = list(metrics.drafter_faults.items())
        yield self.make.counter("specserve_drafter_faults", "Faults of drafters", ("drafter", "reason"), faults)
        drafters = [(drafter,) for drafter in sorted(metrics.drafters_disabled.copy())]
        yield disabled_gauge("specserve_drafter_disabled", ("drafter",), drafters)
        part_faults = list(metrics.faults.counts.items())
        help = "Faults of plugins' parts, and of requests"
        yield self.make.counter("specserve_plugin_faults", help, ("plugin", "part", "reason"), part_faults)
        parts = sorted(metrics.faults.disabled.copy())
        yield disabled_gauge("specserve_plugin_part_disabled", ("plugin", "part"), parts)

    def of_graphs(self, metrics: EngineMetrics) -> Iterator[MetricFamily]:
        labels = ("mode", "reason")
        steps, passes = list(metrics.graph_steps.items()), list(metrics.graph_draft_passes.items())
        yield self.make.counter("specserve_graph_steps", "Steps by graph mode and reason", labels, steps)
        help = "Passes that draft, by graph mode and reason"
        yield self.make.counter("specserve_graph_draft_passes", help, labels, passes)

    def infos(self) -> Iterator[MetricFamily]:
        """Gauges whose labels are what they tell."""
        cache, use = self.state.cache_info, self.state.adapter_use
        labels = {
            "block_size": str(cache.block_size),
            "num_gpu_blocks": str(cache.num_blocks),
            "cache_dtype": cache.dtype,
            "enable_prefix_caching": str(cache.prefix_cache),
        }
        yield self.make.gauge("vllm:cache_config_info", "The KV cache; 1", 1.0, labels)
        if use is not None:
            labels = {
                "max_lora": str(use.max_adapters),
                "running_lora_adapters": ",".join(use.running),
                "waiting_lora_adapters": ",".join(use.waiting),
            }
            yield self.make.gauge("vllm:lora_requests_info", "Adapters in use, at this time", time.time(), labels)


async def metrics(request: web.Request) -> web.Response:
    """A registry per scrape costs microseconds and shares nothing between applications."""
    registry = CollectorRegistry(auto_describe=False)
    engine, names = loaded_engine(request), served_model_names(request)
    state = await asyncio.to_thread(engine.read_state)
    registry.register(EngineCollector(state, engine.max_model_len, state_of(request), names[0]))
    for of_process in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
        registry.register(of_process)
    if state.process_id != os.getpid():
        ProcessCollector("specserve_engine", lambda: state.process_id, registry=registry)
    encode, content_type = encoder_of(",".join(request.headers.getall("Accept", ())))
    return web.Response(body=encode(registry), headers={"Content-Type": content_type})


def encoder_of(accept: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    """Plain text, unless the Accept header asks for OpenMetrics."""
    try:
        _, content_type = choose_encoder(accept)
    except TypeError:  # a version that is no number
        content_type = CONTENT_TYPE_PLAIN_0_0_4
    if content_type.startswith("application/openmetrics-text"):
        # No name needs escaping. The library's default replaces the colon of vLLM's names, which is legal.
        return partial(openmetrics.generate_latest, escaping=openmetrics.ALLOWUTF8), openmetrics.CONTENT_TYPE_LATEST
    return generate_latest, CONTENT_TYPE_PLAIN_0_0_4
