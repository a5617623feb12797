"""Requests, and a runtime without a model, for the tests of what the runtime feeds when."""

from __future__ import annotations

import torch

from specserve.batch.builder import BatchBuilder
from specserve.batch.request import Request
from specserve.batch.span import ScheduledSpan
from specserve.kernels.torch_kernels import TorchKernels
from specserve.protocols import DraftLayers, DraftResources
from specserve.types import Draft, ForwardOutput, SpanVerdict, Verdict
from specserve_draft_models import DraftModelRuntime
from specserve_workbench.testing.requests import toy_request

SIZE, NUM_BLOCKS, W = 4, 128, 3
WAITING = 480
"""Positions of a request that wait before they are fed, where hidden states are as small as `W` numbers."""
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


def a_runtime(layers=LAYERS, size=SIZE, **given):
    resources = DraftResources(
        kernels=TorchKernels(),
        attention=None,  # type: ignore[arg-type]
        block_size=size,
        first_scratch=NUM_BLOCKS,
        scratch_blocks=scratch_blocks(layers, size),
        device=torch.device("cpu"),
        hidden_layers=(1,),
        states=torch.zeros(NUM_BLOCKS, W) if layers.reads_hidden else None,
        **given,
    )
    return DraftModelRuntime(layers, resources)


def scratch_blocks(layers, size):
    return -(-layers.max_draft_rows // size)


class Recorder:
    """Passes that remember which positions they read."""

    def __init__(self):
        self.read = []

    def step(self, batch, hidden, rows, count, *, from_target):
        self.read += batch.positions.tolist()


def preempted(request, blocks):
    """It comes back behind these blocks of the prefix cache."""
    request.preempted_at.append(0.0)
    request.blocks = list(blocks)
    return request


def step(runtime, *requests, limits=None, starts=None, drafts=None, lost=0):
    """A step that computes all committed tokens of the requests, and gives each one token more. `drafts`: of each
    request the draft tokens that are verified (two children of each node, in order), and the path that is accepted, of
    which the last `lost` positions are lost. The hidden state of a committed position is its number, of a wrong guess
    -1."""
    starts = starts or [0] * len(requests)
    drafts = drafts or [(0, ())] * len(requests)
    spans = [
        ScheduledSpan.of(
            r, start, len(r.tokens) - start, scored=1 + drafted, draft=siblings(drafted) if drafted else None
        )
        for r, start, (drafted, _) in zip(requests, starts, drafts, strict=True)
    ]
    batch = BatchBuilder(runtime.block_size, torch.device("cpu")).schedule(spans)
    positions = []
    for span, (drafted, path) in zip(spans, drafts, strict=True):
        committed = range(span.start, span.start + span.known)
        positions += [*committed, *(committed.stop + path.index(n) if n in path else -1 for n in range(drafted))]
    hidden = torch.tensor(positions)[:, None].expand(-1, W).float()
    output = ForwardOutput(torch.zeros(len(spans), 8), {1: hidden})
    for request, (_, path) in zip(requests, drafts, strict=True):
        request.computed = len(request.tokens) + len(path) - lost
        request.tokens += [1] * (len(path) + 1)
    verdict = Verdict([SpanVerdict(path, (1,) * (len(path) + 1), None, None, None) for _, path in drafts])
    return runtime.collect(batch, output, verdict, [4] * len(spans) if limits is None else limits)


def siblings(count):
    """A tree in which nodes 0 and 1 are children of the root, 2 and 3 of node 0, and so on."""
    parents = tuple(node // 2 - 1 for node in range(count))  # -1 is the root
    return Draft(tokens=tuple(range(count)), parents=parents)


def some_path(rng, count):
    """A path from the root of such a tree, of any length."""
    path, node = [], rng.choice((0, 1))
    while node < count and rng.random() < 0.7:
        path.append(node)
        node = 2 * (node + 1) + rng.choice((0, 1))
    return tuple(path)


def fed_positions(feed):
    return [list(range(span.start, span.start + span.length)) for span in feed.batch.spans]
