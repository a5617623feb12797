"""A choice's steps with return_speculation: what was drafted in each, by whom, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.batch.drafts import ROOT, parents_of, sources_of
from specserve.types import DraftStop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from specserve.types import Draft, SpeculationStep
    from specserve_server.engine_client import ServerTokenizer
    from specserve_server.generation.choices import CompletionOutput

SURVIVAL_DIGITS, MILLISECONDS_DIGITS = 4, 3
"""Behind the point."""


class AddedToken(msgspec.Struct):
    """`drafter`: whose accepted draft token it was; null for a token of the model alone."""

    id: int
    text: str
    drafter: str | None


class DraftNode(msgspec.Struct):
    """`parent`: its place in the list; null for what may follow the last token. `survival`: the estimated probability
    that it and all before it are accepted; null where nobody told one."""

    id: int
    text: str
    parent: int | None
    drafter: str
    survival: float | None
    accepted: bool


class StepReport(msgspec.Struct):
    """`tokens`: those that it added. `draft`: what was verified. `stopped`: why no more of it was accepted. `reason`:
    why fewer draft tokens were verified than could have been; null where all that were proposed were."""

    tokens: list[AddedToken]
    draft: list[DraftNode]
    stopped: DraftStop
    reason: str | None
    milliseconds: float


class SpeculationSteps(msgspec.Struct):
    steps: list[StepReport]


def speculation_steps(tokenizer: ServerTokenizer, output: CompletionOutput) -> SpeculationSteps:
    """Of the tokens of this output."""

    def text(place: int, token_id: int) -> str:
        """`place`: among the output's tokens."""
        return tokenizer.token_text(token_id, first=place < output.num_first)

    return SpeculationSteps(list(shown_steps(output, text)))


def shown_steps(output: CompletionOutput, text: Callable[[int, int], str]) -> Iterator[StepReport]:
    begin = 0
    for step in output.steps:
        end = begin + step.num_tokens
        tokens = [
            AddedToken(output.token_ids[place], text(place, output.token_ids[place]), output.drafted_by[place])
            for place in range(begin, end)
        ]
        draft = [] if step.draft is None else shown_draft(step, step.draft, begin, text)
        yield StepReport(tokens, draft, step.stopped, step.reason, round(1000 * step.seconds, MILLISECONDS_DIGITS))
        begin = end


def shown_draft(step: SpeculationStep, draft: Draft, begin: int, text: Callable[[int, int], str]) -> list[DraftNode]:
    """`begin`: the place of the tokens at its root."""
    nodes: list[DraftNode] = []
    places: list[int] = []
    accepted = frozenset(step.path)
    parents, sources = parents_of(draft), sources_of(draft)
    for node, (parent, token_id) in enumerate(zip(parents, draft.tokens, strict=True)):
        place = begin if parent == ROOT else places[parent] + 1
        places.append(place)
        survival = None if draft.survival is None else round(draft.survival[node], SURVIVAL_DIGITS)
        above = None if parent == ROOT else parent
        nodes.append(DraftNode(token_id, text(place, token_id), above, sources[node], survival, node in accepted))
    return nodes
