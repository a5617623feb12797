"""Counters of one engine, as plain numbers that the step loop increments and any thread may read; and what beside them
describes its state.

Knows no exposition format: `specserve_server.operations.metrics` turns them into Prometheus text under the names that
existing dashboards scrape.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from specserve.faults import FaultLog

if TYPE_CHECKING:
    from specserve.types import GraphUse

SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
)
TOKENS = tuple(float(digit * 10**zeros) for zeros in range(7) for digit in (1, 2, 5))
"""Of one request, for any context length."""
STEP_TOKENS = (1.0, *(float(2**power) for power in range(3, 15)))


class Histogram:
    """Counts per bucket of upper bounds, the last one unbounded."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


def token_histogram() -> Histogram:
    return Histogram(TOKENS)


class CacheInfo(NamedTuple):
    """The KV cache, as it was made."""

    block_size: int
    num_blocks: int
    dtype: str
    """Of its elements, which may be smaller than the model's."""
    prefix_cache: bool


class AdapterUse(NamedTuple):
    """Names of the adapters that requests are under now."""

    max_adapters: int
    """As many may be in use at once; 0 where that is not known."""
    running: tuple[str, ...]
    waiting: tuple[str, ...]


@dataclass(slots=True)
class EngineMetrics:
    """Gauges are set once per step; counters only grow."""

    num_requests_running: int = 0
    num_requests_waiting: int = 0
    kv_cache_usage: float = 0.0
    states_running: int = 0
    states_saved: int = 0
    state_bytes: int = 0
    """Of recurrent layers: requests that have a state, states saved for the prefix cache, and the memory for all."""
    num_steps: int = 0
    prompt_tokens: int = 0
    """Counted for requests that got their first token."""
    prompt_tokens_cached: int = 0
    """Those of them that the prefix cache served."""
    prompt_tokens_computed: int = 0
    """Counted in the step that computed them."""
    generation_tokens: int = 0
    num_preemptions: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    """Both in tokens."""
    request_success: Counter[str] = field(default_factory=Counter)
    """By finish reason."""
    time_to_first_token: Histogram = field(default_factory=Histogram)
    inter_token_latency: Histogram = field(default_factory=Histogram)
    e2e_request_latency: Histogram = field(default_factory=Histogram)
    request_queue_time: Histogram = field(default_factory=Histogram)
    request_prefill_time: Histogram = field(default_factory=Histogram)
    request_decode_time: Histogram = field(default_factory=Histogram)
    request_inference_time: Histogram = field(default_factory=Histogram)
    request_time_per_output_token: Histogram = field(default_factory=Histogram)
    request_prompt_tokens: Histogram = field(default_factory=token_histogram)
    request_generation_tokens: Histogram = field(default_factory=token_histogram)
    request_params_max_tokens: Histogram = field(default_factory=token_histogram)
    iteration_tokens: Histogram = field(default_factory=lambda: Histogram(STEP_TOKENS))
    """Per step: prompt tokens computed and tokens generated."""
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    accepted_per_position: Counter[int] = field(default_factory=Counter)
    """How often the draft token at depth d (0 first) was accepted."""
    draft_tokens_by_drafter: Counter[str] = field(default_factory=Counter)
    accepted_tokens_by_drafter: Counter[str] = field(default_factory=Counter)
    """A draft token of several drafters counts for the one that was surest of it."""
    drafter_faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By (drafter, reason)."""
    drafters_disabled: set[str] = field(default_factory=set)
    faults: FaultLog = field(default_factory=FaultLog)
    """Faults of plugins' other parts, and of requests that could not be computed."""
    graph_steps: Counter[GraphUse] = field(default_factory=Counter)
    graph_recording_seconds: float = 0.0
    """Spent on recording graphs: no part of what steps and drafts are known to take."""
    graph_draft_passes: Counter[GraphUse] = field(default_factory=Counter)
    """Passes that draft, of draft models and of the target, if graphs are on."""
