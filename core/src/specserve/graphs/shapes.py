"""What a step is to its graphs: the shape that plugins are asked about, and the key of the graph that serves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.protocols import GraphShape

if TYPE_CHECKING:
    from specserve.batch.batch import Batch
    from specserve.protocols import GraphMode, Phase

PREFILL: Phase = "prefill"


class StepFacts(NamedTuple):
    """The fields of `GraphShape` that do not depend on the mode, in its order."""

    rows: int
    requests: int
    widest: int
    phases: tuple[Phase, ...]
    hidden_layers: tuple[int, ...]
    lora_segments: int
    lora_rank: int
    has_trees: bool
    is_draft_model: bool = False

    @property
    def is_generated(self) -> bool:
        """Are all its rows generated positions, as in decode and verify steps?"""
        return PREFILL not in self.phases

    def shape(self, mode: GraphMode) -> GraphShape:
        return GraphShape(mode=mode, **self._asdict())


def facts_of(batch: Batch, generated: Phase, hidden_layers: tuple[int, ...]) -> StepFacts:
    """`generated`: the phase of generated positions in this engine, decode or verify."""
    has_prompt = has_generated = has_trees = False
    for span in batch.spans:
        prompt_len, draft = span.request.prompt_len, span.draft
        if span.start < prompt_len:
            has_prompt = True
            if span.start + span.length > prompt_len:
                has_generated = True
        else:
            has_generated = True
        if draft is not None and draft.parents is not None:
            has_trees = True
    phases = ((PREFILL,) if has_prompt else ()) + ((generated,) if has_generated else ())
    lora = batch.lora
    num_segments = 0 if lora is None else sum(segment.adapter is not None for segment in lora.segments)
    return StepFacts(
        batch.num_rows,
        len(batch.spans),
        max(batch.query_lens),
        phases,
        hidden_layers,
        num_segments,
        lora.rank if lora is not None and num_segments else 0,
        has_trees,
    )
