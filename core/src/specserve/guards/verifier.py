"""A plugin's verifier, whose verdicts are checked before anything is committed.

The built-in verifier is right by construction and is not checked. An invalid verdict is a fault of the step, which is
then tried with fewer requests. Knows nothing about how tokens are decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from specserve.batch.drafts import ROOT, parents_of
from specserve.faults import BadAnswerError
from specserve.types import FinishReason, SpanVerdict, TokenLogprobs, Verdict

if TYPE_CHECKING:
    from specserve.batch.batch import ScheduledBatch
    from specserve.batch.span import ScheduledSpan
    from specserve.protocols import Verifier
    from specserve.types import ForwardOutput

REASONS = (None, *get_args(FinishReason))


class GuardedVerifier:
    def __init__(self, verifier: Verifier) -> None:
        self.verifier = verifier
        self.name, self.lossless = str(verifier.name), bool(verifier.lossless)

    def verify(self, batch: ScheduledBatch, output: ForwardOutput) -> Verdict:
        verdict = self.verifier.verify(batch, output)
        if not isinstance(verdict, Verdict):
            raise BadAnswerError("verify returned something else than a Verdict")
        if len(verdict.spans) != len(batch.spans):
            raise BadAnswerError("verify decided another number of spans")
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            check_span(span, decided, output.logits.shape[1])
        return verdict


def check_span(span: ScheduledSpan, decided: SpanVerdict, vocab_size: int) -> None:
    if not isinstance(decided, SpanVerdict):
        raise BadAnswerError("verify decided a span by something else than a SpanVerdict")
    tokens, path = decided.tokens, decided.path
    if not isinstance(tokens, tuple) or not all(type(t) is int and 0 <= t < vocab_size for t in tokens):
        raise BadAnswerError("verify gave tokens that are no tuple of ids of the vocabulary")
    if decided.finish_reason not in REASONS:
        raise BadAnswerError("verify gave an unknown finish_reason")
    if not span.reaches_end and (tokens or decided.finish_reason):
        raise BadAnswerError("verify decided a token in the middle of a prompt")
    if span.reaches_end and not tokens and decided.finish_reason is None:
        raise BadAnswerError("verify decided no token")
    check_path(span, path, len(tokens))
    check_logprobs(decided.logprobs, len(tokens))
    check_logprobs(decided.prompt_logprobs, None)


def check_logprobs(found: tuple[TokenLogprobs, ...] | None, count: int | None) -> None:
    if found is None:
        return
    if not isinstance(found, tuple) or not all(isinstance(each, TokenLogprobs) for each in found):
        raise BadAnswerError("verify gave log-probabilities that are no tuple of TokenLogprobs")
    if count is not None and len(found) != count:
        raise BadAnswerError("verify gave another number of log-probabilities than of tokens")


def check_path(span: ScheduledSpan, path: tuple[int, ...], num_tokens: int) -> None:
    if not isinstance(path, tuple) or len(path) > num_tokens or (path and span.draft is None):
        raise BadAnswerError("verify accepted more draft tokens than it gave tokens for")
    parents, at = () if span.draft is None else parents_of(span.draft), ROOT
    for node in path:
        if type(node) is not int or not 0 <= node < len(parents) or parents[node] != at:
            raise BadAnswerError("verify accepted draft tokens that are no path of the draft")
        at = node
