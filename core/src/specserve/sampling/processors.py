"""The core's logits processors: each keeps a request's state and edits a row along a draft's path.

A processor sees one row of raw logits and the draft tokens between the committed ones and that row, so a
row gets the logits it would get if those draft tokens were already committed. Each changes a few
tokens of the vocabulary and states which; the sampler applies the edits. Nothing here knows of batches.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from specserve.protocols import LogitsProcessor, ProcessorState
from specserve.sampling.edits import TorchRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from specserve.batch.request import Request
    from specserve.protocols import LogitEdits


class EditingState(ProcessorState):
    """A processor state whose `apply` makes the edits that `edit` states."""

    has_edits = True

    def apply(self, logits: Tensor, path: Sequence[int]) -> Tensor:
        self.edit(TorchRow(logits), path)
        return logits


class Bias(EditingState):
    """Adds `logit_bias`, in [-100, 100] per token, and forbids what is not in `allowed_token_ids`."""

    def __init__(self, bias: dict[int, float], allowed: Sequence[int] | None) -> None:
        self.ids, self.values = array("q", bias), array("f", bias.values())
        self.allowed = None if allowed is None else array("q", sorted(set(allowed)))

    def edit(self, edits: LogitEdits, path: Sequence[int]) -> None:
        if self.allowed is not None:
            edits.keep_only(self.allowed)
        if self.ids:
            edits.shift(self.ids, self.values)


class Penalties(EditingState):
    """Repetition (Keskar et al., 2019) over prompt and output; presence and frequency over the output."""

    def __init__(self, request: Request) -> None:
        params = request.params
        self.factors = params.repetition_penalty, params.presence_penalty, params.frequency_penalty
        prompt = request.tokens[: request.prompt_len] if params.repetition_penalty != 1.0 else ()
        self.ids = array("q", dict.fromkeys(prompt))
        self.counts = array("f", bytes(4 * len(self.ids)))
        """How often each of `ids` was generated: 0 for those of the prompt alone, which only repetition counts."""
        self.index_of = {token: i for i, token in enumerate(self.ids)}
        self.commit(request.tokens[request.prompt_len :])

    def edit(self, edits: LogitEdits, path: Sequence[int]) -> None:
        ids, counts = self.counts_after(path) if path else (self.ids, self.counts)
        if ids:
            edits.penalize(ids, counts, *self.factors)

    def counts_after(self, path: Sequence[int]) -> tuple[array[int], array[float]]:
        """`ids` and `counts` as if `path` were committed, without a copy of the dictionary, which would cost most."""
        ids, counts, more = self.ids[:], self.counts[:], dict[int, int]()
        for token in path:
            at = self.index_of[token] if token in self.index_of else more.setdefault(token, len(ids))
            if at == len(ids):
                ids.append(token)
                counts.append(0.0)
            counts[at] += 1
        return ids, counts

    def commit(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            at = self.index_of.setdefault(token, len(self.ids))
            if at == len(self.ids):
                self.ids.append(token)
                self.counts.append(0.0)
            self.counts[at] += 1


class MinTokens(EditingState):
    """No end before `min_tokens` tokens were generated."""

    def __init__(self, request: Request, ends: Iterable[int]) -> None:
        self.missing = request.params.min_tokens - request.num_generated
        self.ends = array("q", sorted(ends))

    def edit(self, edits: LogitEdits, path: Sequence[int]) -> None:
        if len(path) < self.missing:
            edits.forbid(self.ends)

    def commit(self, tokens: Sequence[int]) -> None:
        self.missing -= len(tokens)


class BadWords(EditingState):
    """No token that would complete one of the forbidden sequences."""

    def __init__(self, request: Request) -> None:
        words = request.params.bad_words
        self.longest = max(map(len, words)) - 1
        self.tail = tail_of(request.tokens, self.longest)
        self.always = {word[0] for word in words if len(word) == 1}
        self.after: dict[int, list[tuple[list[int], int]]] = {}
        """Words by their last token but one: (all tokens but the last, the last), so that one lookup rules out most."""
        for *start, last in words:
            if start:
                self.after.setdefault(start[-1], []).append((start, last))

    def edit(self, edits: LogitEdits, path: Sequence[int]) -> None:
        newest = path[-1] if path else self.tail[-1] if self.tail else None
        ends = self.always
        if newest in self.after:
            tail = tail_of([*self.tail, *path], self.longest)
            ends = ends | {last for start, last in self.after[newest] if tail[-len(start) :] == start}
        if ends:
            edits.forbid(array("q", ends))

    def commit(self, tokens: Sequence[int]) -> None:
        self.tail = tail_of([*self.tail, *tokens], self.longest)


def tail_of(tokens: list[int], length: int) -> list[int]:
    return tokens[-length:] if length else []


class BiasProcessor(LogitsProcessor):
    def start(self, request: Request, vocab_size: int) -> Bias | None:
        params = request.params
        if not params.logit_bias and params.allowed_token_ids is None:
            return None
        return Bias(params.logit_bias or {}, params.allowed_token_ids)


class PenaltiesProcessor(LogitsProcessor):
    def start(self, request: Request, vocab_size: int) -> Penalties | None:
        p = request.params
        if (p.repetition_penalty, p.presence_penalty, p.frequency_penalty) == (1.0, 0.0, 0.0):
            return None
        return Penalties(request)


class MinTokensProcessor(LogitsProcessor):
    def __init__(self, eos_token_ids: Sequence[int]) -> None:
        self.eos_token_ids = eos_token_ids

    def start(self, request: Request, vocab_size: int) -> MinTokens | None:
        ends = {*self.eos_token_ids, *request.params.stop_token_ids}
        if request.params.min_tokens <= request.num_generated or not ends:
            return None
        return MinTokens(request, ends)


class BadWordsProcessor(LogitsProcessor):
    def start(self, request: Request, vocab_size: int) -> BadWords | None:
        return BadWords(request) if request.params.bad_words else None
