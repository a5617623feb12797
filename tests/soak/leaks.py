"""The state of an idle server: what must be the same at the end as after the warm-up, and what must not have grown."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from soak.metrics import read_metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    import aiohttp

    from soak.outside import Resources

SAME = ("specserve_lora_known", "vllm:cache_config_info")
"""Series that are as they were."""
ZERO = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "specserve_ngram_requests",
    'specserve_ngram_corpora{state="loading"}',
    'specserve_ngram_corpora{state="ready"}',
    "specserve_ngram_corpus_tokens",
    "specserve_lora_requests",
    "specserve_drafter_faults_total",
    "specserve_drafter_disabled",
    "specserve_plugin_faults_total",
    "specserve_plugin_part_disabled",
    'vllm:request_success_total{finished_reason="error"}',
)
"""What an idle server has none of, and faults."""
REACHED = {
    "preemptions": "vllm:num_preemptions_total",
    "tokens from the prefix cache": "vllm:prefix_cache_hits_total",
    "accepted draft tokens of ngram": 'specserve_accepted_draft_tokens_total{drafter="ngram"}',
    "accepted draft tokens of eagle": 'specserve_accepted_draft_tokens_total{drafter="eagle"}',
    "accepted draft tokens of grammar": 'specserve_accepted_draft_tokens_total{drafter="grammar"}',
    "aborted requests": 'vllm:request_success_total{finished_reason="abort"}',
    "evicted adapters": "specserve_lora_evictions_total",
}
"""What a run must have come by, or it proves nothing about it."""
MORE_THREADS = 2
"""The event loop's pool of threads starts them when they are first needed at once."""
CALL_THREADS = 32
"""So does the pool in which the engine's process answers calls: `specserve_server.engine_process.host.THREADS`."""
POOLED_SOCKETS = 16
"""Of both processes: connections by which one passes requests of plugins' routes on to the other stay open for later
ones, as many as there were at once."""
MOST_GROWTH = 0.03
"""Of memory: the median of the last quarter of a run over that of the third."""
SAMPLES_TO_JUDGE = 400
"""Two a second: shorter runs are still warming up."""


class State(NamedTuple):
    metrics: Counter[str]
    resources: Resources


async def state_of(session: aiohttp.ClientSession, resources: Resources) -> State:
    return State(by_own_labels(await read_metrics(session)), resources)


def by_own_labels(values: Counter[str]) -> Counter[str]:
    """Model and engine are the same for all series."""
    found: Counter[str] = Counter()
    for series, value in values.items():
        name, _, labels = series.partition("{")
        own = [label for label in labels.rstrip("}").split(",") if not label.startswith(("model_name", "engine="))]
        found[f"{name}{{{','.join(own)}}}" if own != [""] and own else name] = value
    return found


def leaks(before: State, after: State) -> list[str]:
    """What differs that should not."""
    found = [
        f"{name} is {after.metrics[name]:g}, and was {before.metrics[name]:g}"
        for name in SAME
        if after.metrics[name] != before.metrics[name]
    ]
    found += [f"{name} is {after.metrics[name]:g}" for name in ZERO if after.metrics[name]]
    more_threads = MORE_THREADS if after.resources.processes == 1 else MORE_THREADS + CALL_THREADS
    if after.resources.threads > before.resources.threads + more_threads:
        found.append(f"{after.resources.threads} threads, {before.resources.threads} before")
    if more := Counter(after.resources.descriptors) - Counter(before.resources.descriptors):
        kinds = Counter(name.partition(":")[0] for name in more.elements())
        closed = Counter(before.resources.descriptors) - Counter(after.resources.descriptors)
        pooled = 0 if after.resources.processes == 1 else min(kinds["socket"], POOLED_SOCKETS)
        if kinds.total() - pooled > len(closed):
            found.append(f"open files that were not open before: {dict(kinds)}, such as {next(iter(more))}")
    return found


def growth(samples: Sequence[int]) -> float:
    """Of memory over the second half of a run, as a share; 0 where there are too few samples to tell."""
    if len(samples) < SAMPLES_TO_JUDGE:
        return 0.0
    quarter = len(samples) // 4
    return median(samples[-quarter:]) / median(samples[-2 * quarter : -quarter]) - 1


def not_reached(after: State) -> list[str]:
    return [what for what, name in REACHED.items() if not after.metrics[name]]
