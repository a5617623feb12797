"""What the metrics tell of requests: counted when they get tokens, and once when they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.batch.admitted import assign

if TYPE_CHECKING:
    from specserve.batch.request import Request
    from specserve.metrics import EngineMetrics
    from specserve.types import FinishReason


def count_tokens(metrics: EngineMetrics, request: Request, count: int, now: float) -> None:
    """The request got `count` tokens at once."""
    if request.last_token is None:
        metrics.prompt_tokens += request.prompt_len
        metrics.prompt_tokens_cached += request.cached_tokens
        metrics.time_to_first_token.add(now - request.arrival)
        if count > 1:
            metrics.inter_token_latency.add(0.0, count - 1)
        assign(request, "first_token", now)
    else:
        metrics.inter_token_latency.add((now - request.last_token) / count, count)
    assign(request, "last_token", now)
    metrics.generation_tokens += count


def count_end(metrics: EngineMetrics, request: Request, reason: FinishReason, now: float) -> None:
    """The request ended by itself or by a fault: aborts say nothing of how long requests take."""
    metrics.request_success[reason] += 1
    metrics.e2e_request_latency.add(now - request.arrival)
    metrics.request_prompt_tokens.add(request.prompt_len)
    metrics.request_generation_tokens.add(request.num_generated)
    metrics.request_params_max_tokens.add(request.params.max_tokens)
    scheduled, first, last = request.first_scheduled, request.first_token, request.last_token
    if scheduled is None or first is None or last is None:
        return
    metrics.request_prefill_time.add(first - scheduled)
    metrics.request_decode_time.add(last - first)
    metrics.request_inference_time.add(last - scheduled)
    if request.num_generated > 1:
        metrics.request_time_per_output_token.add((last - first) / (request.num_generated - 1))
