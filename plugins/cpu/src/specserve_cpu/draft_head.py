"""A pass of a draft model in one native call, with cpu_paged attention.

Requests with logits processors, which read the logits, are served piece by piece, to the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from specserve.api import DraftChains, DraftPass, DraftStep
from specserve.api.models import TargetNorm, in_tiles
from specserve_cpu import _native
from specserve_cpu.attention import CpuPagedAttention, native_module
from specserve_cpu.dlpack import dlpack
from specserve_cpu.fused import fuse, is_packed
from specserve_cpu.layer_weights import native_linear
from specserve_cpu.sampler import by_row, target_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.api import AttentionBackend, ScoredRow
    from specserve.api.batch import Batch
    from specserve.api.models import DraftHead
    from specserve_cpu.sampler import CpuSampler


Plan: TypeAlias = "_native.AttentionPlan"
Inputs: TypeAlias = "tuple[Any, Any, bool, Any, Any, Plan, Any, Plan, _native.Sampler, _native.TargetRows]"


class FusedDraftPass(DraftPass):
    """`specserve.api.DraftPass`."""

    def __init__(
        self,
        head: DraftHead,
        native: _native.DtypeModule.DraftHead,
        attention: CpuPagedAttention,
        sampler: CpuSampler,
        pieces: DraftPass,
    ) -> None:
        self.head, self.native, self.attention, self.sampler, self.pieces = head, native, attention, sampler, pieces
        self.num_tokens = head.decoder.vocab_size
        self.row_numbers = torch.arange(1)

    def first_rows(self, count: int) -> Tensor:
        """0, 1, ... [count] int64."""
        if len(self.row_numbers) < count:
            self.row_numbers = torch.arange(2 * count)
        return self.row_numbers[:count]

    def step(
        self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], count: int, *, from_target: bool
    ) -> DraftStep:
        if any(row.request.processors for row in rows):
            return self.pieces.step(batch, hidden, rows, count, from_target=from_target)
        count, own = min(count, self.num_tokens), self.empty_own(batch)
        drafts = self.native.step(
            *self.inputs(batch, hidden, rows, from_target=from_target), count, None if own is None else dlpack(own)
        )
        return DraftStep(by_row(drafts, count), own)

    def chains(
        self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], steps: Sequence[int]
    ) -> DraftChains | None:
        """`specserve.api.DraftPass`."""
        if any(row.request.processors for row in rows):
            return None
        own = self.empty_own(batch)
        drafts, seconds, num_passes = self.native.chains(
            *self.inputs(batch, hidden, rows, from_target=True), list(steps), None if own is None else dlpack(own)
        )
        return DraftChains(by_row(drafts, max(steps)), own, seconds, num_passes)

    def empty_own(self, batch: Batch) -> Tensor | None:
        decoder = self.head.decoder
        if not self.head.reads_hidden:
            return None
        return torch.empty((batch.num_scored, decoder.hidden_size), dtype=decoder.dtype)

    def inputs(self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], *, from_target: bool) -> Inputs:
        """What both native calls read: of the rows of a pass, and of the tokens that are chosen for its scored rows."""
        plan = scored_plan = _native.AttentionPlan(batch.block_size, self.attention.rows_per_tile)
        scored = batch.scored_rows
        if hidden is not None and from_target and self.head.target_norms:
            hidden = in_tiles(self.head.decoder.kernels.row_tile, self.head.normed_parts, hidden)
        if scored is None:
            scored_plan = self.attention.plan(batch).native
            scored = self.first_rows(batch.num_rows)
        else:
            add_last_rows(scored_plan, batch)
        if self.head.decoder.num_layers > 1:
            plan = self.attention.plan(batch).native
        return (
            dlpack(batch.input_ids),
            None if hidden is None else dlpack(hidden),
            from_target,
            dlpack(batch.positions),
            dlpack(batch.slots),
            plan,
            dlpack(scored),
            scored_plan,
            self.sampler.native,
            target_rows(None, rows),
        )


def add_last_rows(plan: _native.AttentionPlan, batch: Batch) -> None:
    """The scored rows of a pass over committed tokens: the last ones of each span that is drafted for."""
    for span in batch.spans:
        if span.scored:
            plan.add(span.start + span.length - span.scored, span.scored, span.scored, span.blocks, ())


def fuse_draft(
    machine: _native.Machine, sampler: CpuSampler, head: DraftHead, pieces: DraftPass, attention: AttentionBackend
) -> FusedDraftPass | None:
    """None where a part of it is not ours."""
    decoder, source = head.decoder, head.from_target
    norm, target_fc = (source, None) if isinstance(source, TargetNorm) else (None, source)
    if decoder.config.beyond_llama or (
        norm is not None and norm.weight is not None and norm.weight.dtype != decoder.dtype
    ):
        return None
    passes = fuse(machine, decoder, attention)
    linears = [each for each in (head.fc, target_fc) if each is not None]
    if passes is None or not isinstance(attention, CpuPagedAttention) or not all(map(is_packed, linears)):
        return None
    native = native_module(decoder.dtype).DraftHead(
        machine=machine,
        stack=passes.stack,
        embedding=decoder.embedding,
        target_fc=None if target_fc is None else native_linear(target_fc),
        target_norm=None if norm is None else norm.weight,
        target_size=decoder.hidden_size if target_fc is None else target_fc.in_features,
        target_eps=0.0 if norm is None else norm.eps,
        fc=None if head.fc is None else native_linear(head.fc),
        reads_hidden=head.reads_hidden,
        embedding_first=head.embedding_first,
        enorm=head.enorm,
        hnorm=head.hnorm,
        feeds_back_norm=head.feeds_back_norm,
        draft_ids=None if head.vocabulary is None else head.vocabulary.ids,
    )
    return FusedDraftPass(head, native, attention, sampler, pieces)
