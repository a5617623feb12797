"""Computes guesses behind committed tokens with the target, for drafters that have no layers of their own.

A request's rows lie where its next step will write anyway: in its own blocks behind the computed tokens, then in
scratch blocks of no request. So nothing that requests or the prefix cache may read is written. What the step gave,
logits and hidden states, stays, but for logits where the pass is replayed from the graph of a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import torch

from specserve.batch.lora_plan import LoraPlan, Segment
from specserve.batch.span import Span
from specserve.errors import ConfigError
from specserve.faults import BadAnswerError
from specserve.inference import inference
from specserve.kv.slots import num_blocks_for
from specserve.models.part import WHOLE_MODEL
from specserve.models.runner import Runner, StepParts
from specserve.protocols import TargetPass
from specserve.types import Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.batch.builder import BatchBuilder
    from specserve.config import EngineConfig
    from specserve.engine.size_cache import DraftBytes
    from specserve.kv.cache import KVCache
    from specserve.models.served_model import ServedModel
    from specserve.protocols import DraftAdapter, Drafter, GuessedRows


class PassSize(NamedTuple):
    """Of the largest pass. Drafters compute one after the other, and share its memory."""

    requests: int
    rows: int
    """Of each request; 0 where no drafter computes with the target."""
    blocks: int
    """Scratch blocks of each request."""

    @classmethod
    def of(cls, config: EngineConfig, drafters: Sequence[Drafter]) -> PassSize:
        """With no more rows than a step has, or those of one request where these are more."""
        rows = max((drafter.needs.target_rows for drafter in drafters), default=0)
        requests = min(config.max_num_seqs, max(1, config.max_num_batched_tokens // max(1, rows)))
        return cls(requests, rows, num_blocks_for(rows, config.block_size))

    def added_to(self, taken: DraftBytes, vocab_size: int) -> DraftBytes:
        """What drafts take of the cache's memory, with the logits and blocks of a pass."""
        logits = self.requests * self.rows * vocab_size * torch.float32.itemsize
        return taken._replace(fixed=taken.fixed + logits, target_blocks=self.requests * self.blocks)


def check_target(model: ServedModel, drafters: Sequence[Drafter]) -> None:
    """Raises ConfigError where the model cannot compute guesses without a trace, or this process cannot alone."""
    name = next((drafter.name for drafter in drafters if drafter.needs.target_rows), None)
    if name is None:
        return
    why = None
    if model.recurrent:
        why = f"{len(model.recurrent)} of this model's are recurrent: draft tokens would change their states"
    elif model.part is not WHOLE_MODEL:
        why = "several processes have parts of each, of which only this one computes drafts"
    if why is not None:
        raise ConfigError(
            f"drafter {name} drafts with the target's own layers, and {why}. Remove --plugin {name}, or draft with "
            "eagle or ngram."
        )


def connect_target(
    config: EngineConfig, drafters: Sequence[Drafter], cache: KVCache, runner: Runner, builder: BatchBuilder
) -> None:
    """Give a pass to each drafter that asks for one."""
    asking = [drafter for drafter in drafters if drafter.needs.target_rows]
    if asking:
        target = EngineTargetPass(runner, builder, cache.num_blocks, PassSize.of(config, asking))
        for drafter in asking:
            drafter.connect_target(target)


class EngineTargetPass(TargetPass):
    """`runner`: of the steps, whose graphs may serve passes; `first_scratch`: the first block that belongs to no
    request."""

    def __init__(self, runner: Runner, builder: BatchBuilder, first_scratch: int, size: PassSize) -> None:
        self.runner, self.eager = runner, Runner(StepParts(runner.model, runner.kernels, runner.attention))
        self.builder, self.sampler = builder, runner.kernels.sampler
        self.first_scratch, self.size, self.max_requests = first_scratch, size, size.requests

    @inference
    def logits(self, rows: Sequence[GuessedRows], adapter: DraftAdapter | None = None) -> Tensor:
        self.check(rows)
        spans = [self.span(each, place) for place, each in enumerate(rows)]
        batch = self.builder.build(spans, [each.request.tokens for each in rows])
        if adapter is not None:
            batch = msgspec.structs.replace(batch, lora=with_draft_adapter(batch, adapter))
        replayed = self.runner.replay_guesses(batch)
        return self.eager.forward(batch).logits if replayed is None else replayed

    def check(self, rows: Sequence[GuessedRows]) -> None:
        """Raises BadAnswerError for more than there are blocks for."""
        most = max((1 + len(each.guesses) for each in rows), default=0)
        if most > self.size.rows or len(rows) > self.size.requests:
            raise BadAnswerError(
                "asked for a larger pass of the target than it may",
                f"got {len(rows)} requests with up to {most} rows each; allowed are {self.size.requests} "
                f"(max_requests) with {self.size.rows} (needs.target_rows)",
            )

    def span(self, rows: GuessedRows, place: int) -> Span:
        """As a step that verifies the guesses."""
        request, first = rows.request, self.first_scratch + place * self.size.blocks
        draft, count = Draft(tokens=tuple(rows.guesses)), len(rows.guesses)
        return Span(
            request.id, len(request.tokens) - 1, 1 + count, count, 1 + count,
            [*request.blocks, *range(first, first + self.size.blocks)],
            request.prompt_len, request.adapter, draft=draft if count else None,
        )  # fmt: skip


def with_draft_adapter(batch: Batch, adapter: DraftAdapter) -> LoraPlan:
    """The plan of the batch, with the adapter for every row but the first of each span."""
    segments, rank = [], 0 if batch.lora is None else batch.lora.rank
    for begin, length in zip(batch.row_offsets, batch.query_lens, strict=True):
        own = () if batch.lora is None else batch.lora.adapted(slice(begin, begin + 1))
        segments.append(Segment(begin, begin + 1, own[0].adapter if own else None))
        if length > 1:
            segments.append(Segment(begin + 1, begin + length, adapter.packed))
            rank = max(rank, adapter.rank)
    return LoraPlan(segments, rank)
