"""A block head's passes in one native call, with cpu_paged attention: committed tokens, blocks and chains.

Chains of requests with logits processors, which read the logits, are made piece by piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from specserve.api import BlockPass, BlockRows, DraftStep, ScoredRow
from specserve.api.batch import part_of, rows_of_spans, to_device
from specserve_cpu.attention import CpuPagedAttention, native_module
from specserve_cpu.dlpack import dlpack
from specserve_cpu.fused import fuse, is_packed
from specserve_cpu.layer_weights import native_linear
from specserve_cpu.sampler import by_row, target_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.api import AttentionBackend, DraftToken
    from specserve.api.batch import Batch, Request
    from specserve.api.models import BlockHead
    from specserve_cpu import _native
    from specserve_cpu.sampler import CpuSampler


class FusedBlockPass(BlockPass):
    """`specserve.api.BlockPass`."""

    def __init__(
        self,
        native: _native.DtypeModule.BlockHead,
        attention: CpuPagedAttention,
        sampler: CpuSampler,
        pieces: BlockPass,
        head: BlockHead,
    ) -> None:
        self.native, self.attention, self.sampler, self.pieces, self.head = native, attention, sampler, pieces, head

    def step(
        self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], count: int, *, from_target: bool
    ) -> DraftStep:
        assert hidden is not None, "every row reads a hidden state"
        self.native.write(dlpack(hidden), dlpack(batch.positions), dlpack(batch.slots))
        return DraftStep([[] for _ in rows], None)

    def draft(
        self, committed: Batch, hidden: Tensor, blocks: Batch, requests: Sequence[Request], wanted: Sequence[int]
    ) -> list[list[DraftToken]]:
        plain = [i for i, request in enumerate(requests) if not request.processors]
        if len(plain) == len(requests):
            return self.in_one_call(committed, hidden, blocks, requests, wanted)
        if not plain:
            return self.pieces.draft(committed, hidden, blocks, requests, wanted)
        processed = [i for i, request in enumerate(requests) if request.processors]
        made = self.in_one_call(committed, hidden, *some_of(plain, blocks, requests, wanted))
        # the pieces write keys and values of their requests again, to the same bits
        feeds = {span.request_id: i for i, span in enumerate(committed.spans)}
        fed = [feeds[requests[i].id] for i in processed]
        rows = to_device(rows_of_spans(committed, fed), hidden.device)
        made += self.pieces.draft(
            part_of(committed, fed), hidden.index_select(0, rows), *some_of(processed, blocks, requests, wanted)
        )
        chains = dict(zip((*plain, *processed), made, strict=True))
        return [chains[i] for i in range(len(requests))]

    def in_one_call(
        self, committed: Batch, hidden: Tensor, blocks: Batch, requests: Sequence[Request], wanted: Sequence[int]
    ) -> list[list[DraftToken]]:
        return by_row(self.native.draft(*self.arguments(committed, hidden, blocks, requests, wanted)), max(wanted))

    def arguments(
        self, committed: Batch, hidden: Tensor, blocks: Batch, requests: Sequence[Request], wanted: Sequence[int]
    ) -> list[Any]:
        """Of the native call that drafts."""
        targets = target_rows(None, [ScoredRow(i, request, ()) for i, request in enumerate(requests)])
        return [*self.inputs(committed, hidden, blocks, wanted), self.sampler.native, targets]

    def rows(self, committed: Batch, hidden: Tensor, blocks: Batch, wanted: Sequence[int]) -> BlockRows:
        decoder, count = self.head.decoder, sum(wanted)
        logits = torch.empty(count, decoder.config.vocab_size)
        states = None
        if self.head.reads_states:
            states = torch.empty(count, decoder.hidden_size, dtype=decoder.dtype)
        outputs = [dlpack(logits), None if states is None else dlpack(states)]
        self.native.rows(*[*self.inputs(committed, hidden, blocks, wanted), *outputs])
        return BlockRows(logits, states)

    def inputs(self, committed: Batch, hidden: Tensor, blocks: Batch, wanted: Sequence[int]) -> list[Any]:
        return [
            dlpack(hidden),
            dlpack(committed.positions),
            dlpack(committed.slots),
            dlpack(blocks.input_ids),
            dlpack(blocks.positions),
            dlpack(blocks.slots),
            self.attention.plan(blocks).native,
            blocks.row_offsets,
            wanted,
        ]


def some_of(
    chosen: Sequence[int], blocks: Batch, requests: Sequence[Request], wanted: Sequence[int]
) -> tuple[Batch, list[Request], list[int]]:
    return part_of(blocks, chosen), [requests[i] for i in chosen], [wanted[i] for i in chosen]


def fuse_blocks(
    machine: _native.Machine, sampler: CpuSampler, head: BlockHead, pieces: BlockPass, attention: AttentionBackend
) -> FusedBlockPass | None:
    """None where a part of it is not ours."""
    decoder, markov, confidence = head.decoder, head.markov, head.confidence
    found = [head.fc, head.keys_values, confidence]
    found += [] if markov is None else [markov.out, markov.gate, markov.joint]
    maps = [each for each in found if each is not None]
    if decoder.config.beyond_llama or not all(map(is_packed, maps)) or not isinstance(attention, CpuPagedAttention):
        return None
    passes = fuse(machine, decoder, attention)
    if passes is None:
        return None
    native = native_module(decoder.dtype).BlockHead(
        machine=machine,
        stack=passes.stack,
        embedding=decoder.embedding,
        fc=native_linear(head.fc),
        hidden_norm=head.hidden_norm,
        keys_values=native_linear(head.keys_values),
        markov_entry=None if markov is None else markov.entry,
        markov_out=None if markov is None else native_linear(markov.out),
        markov_gate=None if markov is None or markov.gate is None else native_linear(markov.gate),
        markov_joint=None if markov is None or markov.joint is None else native_linear(markov.joint),
        confidence=None if confidence is None else native_linear(confidence),
        first_proposing=head.first_proposing,
        draft_ids=None if head.vocabulary is None else head.vocabulary.ids,
    )
    return FusedBlockPass(native, attention, sampler, pieces, head)
