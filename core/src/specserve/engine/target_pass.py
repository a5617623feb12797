"""Computes guesses behind committed tokens with the target, for drafters that have no layers of their own.

A request's rows lie where its next step will write anyway: in its own blocks behind the computed tokens, then in
scratch blocks of no request. So nothing that requests or the prefix cache may read is written. The passes have buffers
of their own: what the step gave, logits and hidden states, stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.batch.lora_plan import LoraPlan, Segment
from specserve.batch.span import Span
from specserve.errors import ConfigError
from specserve.inference import inference
from specserve.kv.slots import num_blocks_for
from specserve.models.part import WHOLE_MODEL
from specserve.models.runner import Runner
from specserve.protocols import TargetPass
from specserve.types import Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.batch.builder import BatchBuilder
    from specserve.config import EngineConfig
    from specserve.kv.cache import KVCache
    from specserve.models.runner import StepParts
    from specserve.models.served_model import ServedModel
    from specserve.protocols import DraftAdapter, Drafter, GuessedRows


def most_target_rows(drafters: Sequence[Drafter]) -> int:
    """Rows of a request in a pass at most; 0 where no drafter computes with the target."""
    return max((drafter.needs.target_rows for drafter in drafters), default=0)


def blocks_of_request(config: EngineConfig, drafters: Sequence[Drafter]) -> int:
    """Scratch blocks for the rows of one request."""
    return num_blocks_for(most_target_rows(drafters), config.block_size)


def scratch_blocks(config: EngineConfig, drafters: Sequence[Drafter]) -> int:
    """For all requests of a pass. Drafters compute one after the other, and share them."""
    return config.max_num_seqs * blocks_of_request(config, drafters)


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
    config: EngineConfig, drafters: Sequence[Drafter], cache: KVCache, step: StepParts, builder: BatchBuilder
) -> None:
    """Give a pass to each drafter that asks for one."""
    asking = [drafter for drafter in drafters if drafter.needs.target_rows]
    if asking:
        target = EngineTargetPass(step, builder, cache.num_blocks, blocks_of_request(config, asking))
        for drafter in asking:
            drafter.connect_target(target)


class EngineTargetPass(TargetPass):
    """`first_scratch`: the first block that belongs to no request; `num_scratch`: how many from there on each request
    of a pass has."""

    def __init__(self, step: StepParts, builder: BatchBuilder, first_scratch: int, num_scratch: int) -> None:
        self.runner = Runner(step._replace(hidden_layers=()))
        self.builder, self.sampler = builder, step.kernels.sampler
        self.first_scratch, self.num_scratch = first_scratch, num_scratch

    @inference
    def logits(self, rows: Sequence[GuessedRows], adapter: DraftAdapter | None = None) -> Tensor:
        spans = [self.span(each, place) for place, each in enumerate(rows)]
        batch = self.builder.build(spans, [each.request.tokens for each in rows])
        if adapter is not None:
            batch = msgspec.structs.replace(batch, lora=with_draft_adapter(batch, adapter))
        return self.runner.forward(batch).logits

    def span(self, rows: GuessedRows, place: int) -> Span:
        """As a step that verifies the guesses."""
        request, first = rows.request, self.first_scratch + place * self.num_scratch
        draft, count = Draft(tokens=tuple(rows.guesses)), len(rows.guesses)
        return Span(
            request.id, len(request.tokens) - 1, 1 + count, count, 1 + count,
            [*request.blocks, *range(first, first + self.num_scratch)],
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
