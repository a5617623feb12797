"""What a drafter with decoder layers of its own states, and what it is given for them.

The layers' keys and values lie in the paged cache under the target's block ids. A layer that reads the target's hidden
states has the pair (hidden state p, token p + 1) at position p + 1, so that the tokens of a block alone, and those
before it, determine what lies in it. Letters: R rows of a pass, H the draft model's hidden size, W numbers of the
target's hidden state (all layers that `DrafterNeeds.hidden_layers` names, one after the other).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.protocols.attention import AttentionBackend
    from specserve.protocols.model import ForwardPass, KernelSet


def no_blocks(hashes: Sequence[bytes]) -> Sequence[int]:
    """Those of a prefix cache that has none."""
    return ()


class DraftLayers(msgspec.Struct, frozen=True, kw_only=True):
    """The decoder layers of a draft model."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    sliding_windows: tuple[int | None, ...]
    """Per layer with attention: how many keys a query sees, itself included; None for all."""
    soft_caps: tuple[float | None, ...] = ()
    sinks: tuple[Any, ...] = ()
    """Both as in `specserve.protocols.attention.AttentionSpec`."""
    token_widths: tuple[int, ...] = ()
    """For each layer without attention: how many numbers of the model's dtype it keeps of each token."""
    reads_hidden: bool
    """Position p + 1 takes the target's hidden state of p beside its token; then position 0 has no key."""
    has_trees: bool
    """Do passes compute draft tokens that branch?"""
    max_draft_rows: int
    """Rows of one request that a draft takes at most: the last committed token and draft tokens behind it."""
    max_len: int
    """Positions from this one on are not computed, and requests as long get no drafts."""


class TargetCosts(Protocol):
    """What steps of the target take, without drafting, as far as the planner knows."""

    def seconds(self, rows: int, requests: int, draft_tokens: int = 0) -> float:
        """The time of a step of `rows` rows for `requests` requests; the last `draft_tokens` rows are draft tokens."""
        ...


class LayersFunction(Protocol):
    """A draft model's pass from token ids and hidden states to its last layer's output."""

    def __call__(
        self, passes: ForwardPass, batch: Batch, plan: Any, hidden: Tensor | None, *, from_target: bool
    ) -> Tensor:
        """[R, H]. `passes`: over the model's layers; `plan`: of the attention for this batch. hidden: [R, W] from the
        target, or [R, H] of an earlier pass."""
        ...


class DraftReplays(Protocol):
    """Recorded passes of one draft model."""

    def replay(self, batch: Batch, hidden: Tensor | None, *, from_target: bool) -> Tensor | None:
        """[R, H]: what the recorded function gives. None where the pass is not replayed: call it yourself."""
        ...


class DraftGraphs(Protocol):
    """Records passes of draft models, and counts them all."""

    def record(self, decoder: Any, function: LayersFunction) -> DraftReplays:
        """Passes are recorded when they are first needed. `decoder`: the `specserve.models.decoder.DecoderModel` that
        has the layers."""
        ...

    def count(self, reason: str, num_passes: int = 1) -> None:
        """Passes that something else computed, and why they are not replayed."""
        ...


class DraftResources(NamedTuple):
    """What the engine gives a drafter for its layers, once the KV cache is made.

    `specserve_draft_models.DraftModelRuntime` keeps a draft model's part of the cache in step with the target by it.
    """

    kernels: KernelSet
    attention: AttentionBackend
    """Serves the layers, over their part of the cache."""
    block_size: int
    first_scratch: int
    """The first block that belongs to no request: blocks below it are the target's, too."""
    scratch_blocks: int
    """How many blocks from there on each request may use in a step, which hold `DraftLayers.max_draft_rows` rows."""
    device: torch.device
    token_states: Sequence[Tensor] = ()
    """For each layer without attention, [slots, width]: what it keeps of tokens."""
    hidden_layers: tuple[int, ...] = ()
    """`DrafterNeeds.hidden_layers`, none of them negative."""
    states: Tensor | None = None
    """[first_scratch, W]: room for a hidden state of every block; None where none are read."""
    costs: TargetCosts | None = None
    """None where no planner knows them."""
    depth_is_planned: bool = False
    """Whether limits already bound chains to the depth that pays, by what passes cost."""
    graphs: DraftGraphs | None = None
    """None where nothing is recorded."""
    cached_blocks: Callable[[Sequence[bytes]], Sequence[int]] = no_blocks
    """The blocks that the prefix cache has for the longest run of these chain hashes, from the first on."""
