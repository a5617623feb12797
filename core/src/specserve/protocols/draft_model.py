"""What a drafter with decoder layers of its own states, and the runtime that it is handed for them.

The layers' keys and values lie in the paged cache under the target's block ids. A layer that reads the target's hidden
states has the pair (hidden state p, token p + 1) at position p + 1, so that the tokens of a block alone, and those
before it, determine what lies in it. Letters: R rows of a pass, W numbers of a hidden state (all layers that
`DrafterNeeds.hidden_layers` names, one after the other).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch, ScheduledBatch
    from specserve.batch.request import Request
    from specserve.protocols.attention import AttentionBackend
    from specserve.protocols.draft_pass import DraftPass
    from specserve.protocols.model import KernelSet
    from specserve.types import ForwardOutput, Verdict


class DraftLayers(msgspec.Struct, frozen=True, kw_only=True):
    """The decoder layers of a draft model."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    sliding_windows: tuple[int | None, ...]
    """Per layer: how many keys a query sees, itself included; None for all."""
    reads_hidden: bool
    """Position p + 1 takes the target's hidden state of p beside its token; then position 0 has no key."""
    has_trees: bool
    """Do passes compute draft tokens that branch?"""
    max_draft_rows: int
    """Rows of one request that a draft takes at most: the last committed token and draft tokens behind it."""
    max_len: int
    """Positions from this one on are not computed, and requests as long get no drafts."""


class DraftSequence(Protocol):
    """A request as the draft layers have it."""

    request: Request
    num_fed: int
    """Its positions below this have keys and values in the draft layers."""


class Feed(NamedTuple):
    """A pass over committed tokens that the draft layers do not have yet."""

    batch: Batch
    """Spans of committed tokens. Those that are drafted for come first, and their last rows are scored."""
    hidden: Tensor | None
    """[R, W]: the target's hidden state of the position before each row's; None where none are read."""
    sequences: Sequence[DraftSequence]
    """Of each span."""
    drafting: Sequence[int]
    """Indices of the target's batch: span i of this batch drafts for span drafting[i] of that one. Later spans do not
    draft."""


class DraftRows(NamedTuple):
    """The draft tokens of one request that a pass computes: nodes from `first` on of a tree whose earlier nodes were
    computed since the last `collect`."""

    sequence: DraftSequence
    tokens: tuple[int, ...]
    """Of all nodes."""
    parents: tuple[int, ...] | None = None
    """None: a chain."""
    first: int = 0


class TargetCosts(Protocol):
    """What steps of the target take, without drafting, as far as the planner knows."""

    def seconds(self, rows: int, requests: int, draft_tokens: int = 0) -> float:
        """Of a step with so many rows for so many requests; the last `draft_tokens` rows are draft tokens."""
        ...


class DraftRuntime(Protocol):
    """Keeps what a draft model has of every request in step with the committed tokens.

    Call `start` and `stop` for every request and `collect` in every step. After the pass of a `Feed`, call `done`;
    where the pass raises, the same rows are in a later one.
    """

    kernels: KernelSet
    attention: AttentionBackend
    """Serves the draft layers."""
    costs: TargetCosts | None
    """None where no planner knows them."""
    depth_is_planned: bool
    """Whether limits already bound chains to the depth that pays, by what passes cost."""

    def draft_pass(self, head: Any) -> DraftPass:
        """Of a `specserve.models.draft_head.DraftHead`; one call of the kernel set where that can fuse it."""
        ...

    def start(self, request: Request) -> None:
        """Call it from the drafter's `start`."""
        ...

    def stop(self, request: Request) -> None:
        """Call it from the drafter's `stop`."""
        ...

    def collect(
        self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> Feed | None:
        """What is to be computed in this step: all that the requests with a limit above 0 lack, and what completes a
        block of others. None: nothing."""
        ...

    def done(self, feed: Feed) -> None:
        """The pass over the feed has run: its positions have keys and values in the draft layers."""
        ...

    def draft_batch(self, rows: Sequence[DraftRows]) -> Batch:
        """A batch of draft tokens, all scored; their keys and values are lost with the next `collect`."""
        ...
