"""What a step is to its graphs: the shape that plugins are asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import GraphShape

if TYPE_CHECKING:
    from specserve.api import Phase
    from specserve.api.batch import Batch

PREFILL: Phase = "prefill"


def shape_of(batch: Batch, generated: Phase, hidden_layers: tuple[int, ...]) -> GraphShape:
    """For full graphs. `generated`: the phase of generated positions in this engine, decode or verify."""
    has_prompt = has_generated = has_trees = False
    for span in batch.spans:
        prompt_len, draft = span.prompt_len, span.draft
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
    return GraphShape(
        mode="full",
        rows=batch.num_rows,
        requests=len(batch.spans),
        widest=max(batch.query_lens),
        phases=phases,
        hidden_layers=hidden_layers,
        lora_segments=num_segments,
        lora_rank=lora.rank if lora is not None and num_segments else 0,
        has_trees=has_trees,
    )
