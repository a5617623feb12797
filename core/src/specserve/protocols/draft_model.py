"""What a drafter with decoder layers of its own states, and the runtime that it is handed for them.

The layers' keys and values lie in the paged cache under the target's block ids. A layer that reads the target's hidden
states has the pair (hidden state p, token p + 1) at position p + 1, so that the tokens of a block alone, and those
before it, determine what lies in it. Letters: R rows of a pass, W numbers of a hidden state (all layers that
`DrafterNeeds.hidden_layers` names, one after the other).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from specserve.protocols.model import KernelSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch, ScheduledBatch
    from specserve.batch.request import Request
    from specserve.protocols.attention import AttentionBackend
    from specserve.protocols.sampling import DraftToken, ScoredRow
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


class DraftStep(NamedTuple):
    """What a pass of a draft model gives for its scored rows."""

    tokens: list[list[DraftToken]]
    """The best next tokens of each row, best first."""
    hidden: Tensor | None
    """[n, H]: own hidden states, which the pass over the next draft tokens reads; None where none are read."""


class DraftPass(Protocol):
    """Passes of a draft model: token and hidden state in, tokens and hidden state out."""

    def step(
        self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], count: int, *, from_target: bool
    ) -> DraftStep:
        """hidden: [R, W] from the target, or [R, H] of an earlier pass; it is not changed. rows: the scored rows of
        the batch in order, numbered from 0, of which at most `count` tokens each are wanted."""
        ...


class DraftChains(NamedTuple):
    """What several passes of a draft model give."""

    tokens: list[list[DraftToken]]
    """Of each scored row of the first pass the chain behind it; shorter than wanted where there is no further token."""
    hidden: Tensor | None
    """[n, H]: own hidden states that these rows' next passes read; None where none are read."""
    seconds: float
    """Of the passes after the first."""
    num_passes: int
    """After the first."""


class ChainPass(DraftPass, Protocol):
    """A pass that can go on by itself: each row's best token is the input of its next pass. With the bits of `step`."""

    def chains(
        self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], steps: Sequence[int]
    ) -> DraftChains | None:
        """As `step` over committed tokens, each scored row being its request's last. Row i wants a chain of steps[i]
        tokens, at least one. None: go on pass by pass."""
        ...


class DraftFusingKernels(KernelSet, Protocol):
    """A kernel set that may fuse a pass of a draft model; others need not have the method."""

    def fuse_draft(self, head: Any, pieces: Any, attention: AttentionBackend) -> DraftPass | None:
        """A pass of the `specserve.models.draft_head.DraftHead` with the same bits as its pieces (a
        `specserve.draft_models.head_pass.PiecewisePass`), which may serve what the fused one does not; None: the pieces
        are called."""
        ...


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
