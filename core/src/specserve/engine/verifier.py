"""Drafter-invariant verification: the target model decides every token, whatever was drafted.

For each span that reaches the end of its request's tokens, the target token of the last committed row is
computed; while it equals a child in the draft, that child is accepted and its row gives the next target token. Where
no child does, the target token is the bonus token. So a request's tokens are those of plain decoding by construction; a
draft only decides how many of them one step finds. Tokens are truncated at stops here, token by token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.batch.drafts import ROOT, children_of
from specserve.engine.stopping import find_stop
from specserve.faults import FAULTS, RequestFault
from specserve.inference import inference
from specserve.protocols import ScoredRow
from specserve.sampling.checked_choice import target_tokens
from specserve.types import SpanVerdict, TokenLogprobs, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import ScheduledBatch
    from specserve.batch.request import Request
    from specserve.batch.span import ScheduledSpan
    from specserve.protocols import Sampler
    from specserve.types import ForwardOutput

UNDECIDED = SpanVerdict((), (), None, None, None)


class DraftWalk:
    """The accepted path of one span through its draft, while it is found."""

    __slots__ = ("children", "drafted", "first", "node", "path", "span", "tokens")

    def __init__(self, span: ScheduledSpan, first: int) -> None:
        self.span = span
        self.first = first
        """Row, in the logits, of the last committed token; node n is row first + 1 + n."""
        self.node = ROOT
        self.path: list[int] = []
        self.tokens: list[int] = []
        draft = span.draft
        self.drafted = () if draft is None else draft.tokens
        self.children = None if draft is None or draft.parents is None else children_of(draft)
        """The children of a tree's nodes. None for a chain, where the child of node n is n + 1."""

    @property
    def row(self) -> int:
        return self.first + 1 + self.node

    def advance(self, token: int) -> bool:
        """The target token is `token`: move to the child with that token. False where there is none."""
        self.tokens.append(token)
        if self.children is not None:
            child = self.children.get(self.node, {}).get(token)
            if child is None:
                return False
        else:
            child = self.node + 1
            if child == len(self.drafted) or self.drafted[child] != token:
                return False
        self.path.append(child)
        self.node = child
        return True


def is_plain(span: ScheduledSpan) -> bool:
    """One greedy row without log-probabilities."""
    params = span.request.params
    return span.is_greedy and span.scored == 1 and params.logprobs is None and params.prompt_logprobs is None


class DrafterInvariantVerifier:
    name = "drafter-invariant"
    lossless = True

    def __init__(self, eos_token_ids: Sequence[int], sampler: Sampler) -> None:
        self.eos_token_ids, self.sampler = frozenset(eos_token_ids), sampler

    @inference
    def verify(self, batch: ScheduledBatch, output: ForwardOutput) -> Verdict:
        logits = output.logits
        greedy: list[DraftWalk] = []
        others: list[DraftWalk] = []
        walks: dict[int, DraftWalk] = {}
        plain: dict[int, int] = {}
        for i, (span, offset) in enumerate(zip(batch.spans, batch.scored_offsets, strict=True)):
            if span.scored and span.reaches_end:
                row = offset + span.scored - 1 - span.drafted
                if is_plain(span):
                    plain[i] = row
                else:
                    walks[i] = DraftWalk(span, row)
                    (greedy if span.is_greedy else others).append(walks[i])
        # greedy target tokens of all rows in one call: cheaper than level by level, and exact
        targets = self.greedy_tokens(output) if plain or greedy else []
        for walk in greedy:
            while walk.advance(targets[walk.row]):
                pass
        self.walk_by_level(logits, others)
        verdicts = []
        for i, span in enumerate(batch.spans):
            if i in plain:
                verdicts.append(self.plain_verdict(span.request, targets[plain[i]]))
            else:
                verdicts.append(self.span_verdict(batch, output, i, walks.get(i)) if span.scored else UNDECIDED)
        return Verdict(verdicts)

    def greedy_tokens(self, output: ForwardOutput) -> list[int]:
        if output.greedy is None:
            return self.sampler.argmax_tokens(output.logits)
        tokens: list[int] = output.greedy.tolist()
        return tokens

    def plain_verdict(self, request: Request, token: int) -> SpanVerdict:
        """`span_verdict` of one greedy token without log-probabilities: the most frequent case, made quick."""
        no_stops = request.stop_matcher is None and not request.params.stop_token_ids
        if no_stops and token not in self.eos_token_ids and len(request.tokens) + 1 < request.max_len:
            return SpanVerdict((), (token,), None, None, None)
        try:
            return SpanVerdict((), (token,), find_stop(request, (token,), self.eos_token_ids).reason, None, None)
        except FAULTS as error:
            return fault_verdict(request, "its stop condition", error)

    def walk_by_level(self, logits: Tensor, walks: list[DraftWalk]) -> None:
        """Decides sampled and processed rows: only those that a walk reaches, one tree level of all walks at a time."""
        while walks:
            rows = [ScoredRow(walk.row, walk.span.request, tuple(walk.tokens)) for walk in walks]
            targets = target_tokens(self.sampler, logits, rows)
            walks = [walk for walk, token in zip(walks, targets, strict=True) if walk.advance(token)]

    def span_verdict(self, batch: ScheduledBatch, output: ForwardOutput, i: int, walk: DraftWalk | None) -> SpanVerdict:
        """Stop matchers read the tokens here, which must not happen twice: a fault ends its request at once."""
        try:
            return self.checked_verdict(batch, output, i, walk)
        except FAULTS as error:
            return fault_verdict(batch.spans[i].request, "its stop condition or its log-probabilities", error)

    def checked_verdict(
        self, batch: ScheduledBatch, output: ForwardOutput, i: int, walk: DraftWalk | None
    ) -> SpanVerdict:
        span = batch.spans[i]
        prompt = self.prompt_logprobs(span, output, batch.scored_offsets[i])
        if walk is None:
            return UNDECIDED if prompt is None else SpanVerdict((), (), None, None, prompt)
        request = span.request
        count, reason = find_stop(request, walk.tokens, self.eos_token_ids)
        tokens, path = tuple(walk.tokens[:count]), tuple(walk.path[:count])
        logprobs: tuple[TokenLogprobs, ...] | None = None
        wanted = request.params.logprobs
        if wanted is not None:
            rows = [walk.first, *(walk.first + 1 + node for node in walk.path)][:count]
            logprobs = tuple(self.sampler.token_logprobs(output.logits[rows], tokens, [wanted] * count))
        return SpanVerdict(path, tokens, reason, logprobs, prompt)

    def prompt_logprobs(
        self, span: ScheduledSpan, output: ForwardOutput, offset: int
    ) -> tuple[TokenLogprobs, ...] | None:
        """Log-probabilities of the prompt tokens that follow this span's scored prompt rows."""
        request = span.request
        wanted = request.params.prompt_logprobs
        if wanted is None or not span.scored:
            return None
        begin = span.start + span.length - span.scored
        end = min(span.start + span.length, request.prompt_len - 1)
        if begin >= end:
            return None
        tokens = request.tokens[begin + 1 : end + 1]
        logits = output.logits[offset : offset + end - begin]
        return tuple(self.sampler.token_logprobs(logits, tokens, [wanted] * len(tokens)))


def fault_verdict(request: Request, what: str, error: BaseException) -> SpanVerdict:
    return SpanVerdict((), (), "error", None, None, RequestFault(request.id, what, error))
