"""Forward passes and attention calls of chosen shapes: number of requests, context length, rows per request.

Keys and values are those of `write_cache` or left over from earlier passes; the cost of a pass does not depend on their
values, but on their pages having been written.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.lib.shapes import model_directory
from benchmarks.lib.workload import demo_engine
from specserve.batch.builder import BatchBuilder
from specserve.batch.request import Request
from specserve.batch.span import ScheduledSpan
from specserve.types import GenerateRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.lib.report import Options
    from specserve.batch.batch import Batch
    from specserve.engine.assembly import Assembled
    from specserve.models.runner import Runner
    from specserve.models.served_model import ServedModel

BLOCK_SIZE = 16


def engine_of(model: str, options: Options, **overrides: Any) -> Assembled:
    """The engine on this model; `overrides` are fields of EngineConfig."""
    return demo_engine(options, model=str(model_directory(model)), kv_memory="2G", **overrides)


def write_cache(assembled: Assembled) -> None:
    """Pages of memory that were never written are all one page of zeros, which is read from the processor's caches."""
    assembled.engine.parts.cache.data.fill_(1)


def batch_of(num_requests: int, context: int, rows: int = 1) -> Batch:
    """Every request computes its last `rows` of `context` tokens, with logits of all of them."""
    blocks_each = -(-context // BLOCK_SIZE)
    spans = []
    for order in range(num_requests):
        request = Request.admit(
            GenerateRequest(request_id=f"r{order}", prompt_token_ids=tuple(i % 300 for i in range(context))),
            seed=0, arrival=0.0, order=order, max_len=context + 1,
        )  # fmt: skip
        request.blocks = list(range(order * blocks_each, (order + 1) * blocks_each))
        spans.append(ScheduledSpan.of(request, context - rows, rows, scored=rows))
    return BatchBuilder(BLOCK_SIZE, torch.device("cpu")).schedule(spans)


def paged_attention(runner: Runner, batch: Batch) -> None:
    """Plan, then one attention call per layer, keys and values written."""
    model, backend = runner.model, runner.attention
    q = torch.ones((batch.num_rows, model.num_heads, model.head_dim), dtype=model.dtype)
    k = torch.ones((batch.num_rows, model.num_kv_heads, model.head_dim), dtype=model.dtype)
    plan = backend.plan(batch)
    for layer in range(model.num_layers):
        backend.forward(layer, q, k, k, plan)


def kv_bytes(model: ServedModel, num_tokens: int) -> int:
    return num_tokens * model.num_layers * 2 * model.num_kv_heads * model.head_dim * model.dtype.itemsize


def weight_bytes(model: ServedModel) -> int:
    """The weights that a decode step reads."""
    num_weights = sum(projection.in_features * projection.out_features for projection in model.projections.values())
    return num_weights * model.dtype.itemsize


def median_seconds(action: Callable[[], object], budget: float = 0.5) -> float:
    """The median of at least three calls, and of as many as fit in `budget` seconds, after one that is not timed."""
    action()
    seconds: list[float] = []
    while len(seconds) < 3 or sum(seconds) < budget:
        began = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - began)
    return median(seconds)
