"""Forward passes of chosen shapes: so many requests behind so many tokens, so many rows each.

The cache is filled with zeros or with what earlier passes left there; what a pass costs does not depend on it.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

import torch

from benchmarks.lib.shapes import model_directory
from benchmarks.lib.workload import DTYPE
from specserve.batch.batch import BatchBuilder
from specserve.batch.request import Request
from specserve.batch.span import Span
from specserve.config import EngineConfig
from specserve.engine.assembly import Assembled, assemble
from specserve.plugins.host import PluginHost
from specserve.types import GenerateRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from benchmarks.lib.report import Options
    from specserve.batch.batch import Batch
    from specserve.models.decoder import DecoderModel

BLOCK_SIZE = 16


def engine_of(model: str, options: Options, **overrides: Any) -> Assembled:
    """The product on this model; `overrides` are fields of EngineConfig."""
    fields: dict[str, Any] = {"kv_memory": "2G", "prefix_cache": False, **overrides}
    config = EngineConfig(model=str(model_directory(model)), dtype=DTYPE, threads=options.threads, **fields)
    return assemble(config, PluginHost.start(config))


def batch_of(num_requests: int, context: int, rows: int = 1) -> Batch:
    """Every request computes its last `rows` of `context` tokens and wants logits of all of them."""
    blocks_each = -(-context // BLOCK_SIZE)
    spans = []
    for order in range(num_requests):
        request = Request.admit(
            GenerateRequest(request_id=f"r{order}", prompt_token_ids=tuple(i % 300 for i in range(context))),
            seed=0, arrival=0.0, order=order, max_len=context + 1,
        )  # fmt: skip
        request.blocks = list(range(order * blocks_each, (order + 1) * blocks_each))
        spans.append(Span(request, context - rows, rows, 0, rows))
    return BatchBuilder(BLOCK_SIZE, torch.device("cpu")).build(spans)


def kv_bytes(model: DecoderModel, tokens: int) -> int:
    return tokens * model.num_layers * 2 * model.num_kv_heads * model.head_dim * model.dtype.itemsize


def weight_bytes(model: DecoderModel) -> int:
    """What a decode step reads of the weights."""
    numbers = sum(projection.in_features * projection.out_features for projection in model.projections.values())
    return numbers * model.dtype.itemsize


def seconds_each(action: Callable[[], object], budget: float = 0.5) -> float:
    """The median time of a call, of as many as fit in `budget` seconds after a first one, at least three."""
    action()
    taken: list[float] = []
    while len(taken) < 3 or sum(taken) < budget:
        began = time.perf_counter()
        action()
        taken.append(time.perf_counter() - began)
    return median(taken)
