"""Requests, block notes and a runtime without a model, for the tests of what the runtime feeds when."""

from __future__ import annotations

import torch

from specserve.batch.builder import BatchBuilder
from specserve.batch.request import Request
from specserve.batch.span import Span
from specserve.draft_models.block_notes import BlockNotes
from specserve.draft_models.feeds import DraftMemory
from specserve.draft_models.runtime import DraftModelRuntime
from specserve.kernels.torch_kernels import TorchKernels
from specserve.protocols import DraftLayers
from specserve.testing.requests import toy_request
from specserve.types import ForwardOutput, SpanVerdict, Verdict

SIZE, NUM_BLOCKS, W = 4, 128, 3
WAITING = 224
"""So many positions wait of a request whose hidden states are so small."""
LAYERS = DraftLayers(
    num_heads=2, num_kv_heads=1, head_dim=4, scale=0.5, sliding_windows=(None,), reads_hidden=True, has_trees=False,
    max_draft_rows=6, max_len=64,
)  # fmt: skip


def a_request(name="r", num_tokens=10, blocks=(7, 3, 9)):
    wire = toy_request(name, range(num_tokens), max_tokens=20)
    request = Request.admit(wire, seed=0, arrival=0.0, order=0, max_len=num_tokens + 20)
    request.blocks = list(blocks)
    return request


def hashes(*names):
    return [name.encode() for name in names]


def a_runtime(layers=LAYERS, size=SIZE):
    notes = BlockNotes(torch.zeros(NUM_BLOCKS, W) if layers.reads_hidden else None)
    memory = DraftMemory(None, notes, size, NUM_BLOCKS, torch.device("cpu"))  # type: ignore[arg-type]
    return DraftModelRuntime(layers, (1,), TorchKernels(), memory)


def step(runtime, *requests, limits=None, starts=None):
    """A step that computes all committed tokens of the requests, and gives each one token more."""
    starts = starts or [0] * len(requests)
    spans = [Span(r, start, len(r.tokens) - start, 0, 1) for r, start in zip(requests, starts, strict=True)]
    batch = BatchBuilder(runtime.block_size, torch.device("cpu")).build(spans)
    positions = torch.cat([torch.arange(span.start, span.start + span.length) for span in spans])
    output = ForwardOutput(torch.zeros(len(spans), 8), {1: positions[:, None].expand(-1, W).float()})
    for request in requests:
        request.computed = len(request.tokens)
        request.tokens.append(1)
    verdict = Verdict([SpanVerdict((), (1,), None, None, None) for _ in spans])
    return runtime.collect(batch, output, verdict, [4] * len(spans) if limits is None else limits)


def fed_positions(feed):
    return [list(range(span.start, span.start + span.length)) for span in feed.batch.spans]
