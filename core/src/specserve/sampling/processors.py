"""The core's logits processors: each keeps a request's state and applies it along a draft's path.

A processor sees one row of raw logits and the guessed tokens between the committed ones and that row, so a
row gets the logits it would get if those guesses were already committed. Nothing here knows of batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from specserve.request import Request

NEVER = float("-inf")


class Bias:
    """Adds `logit_bias`, in [-100, 100] per token, and forbids what is not in `allowed_token_ids`."""

    def __init__(self, bias: dict[int, float], allowed: Sequence[int] | None, vocab_size: int) -> None:
        self.added = torch.zeros(vocab_size)
        if allowed is not None:
            self.added.fill_(NEVER)
            self.added[list(allowed)] = 0.0
        for token, value in bias.items():
            self.added[token] += value

    def apply(self, logits: Tensor, path: Sequence[int]) -> Tensor:
        return logits.add_(self.added.to(logits.device))

    def commit(self, tokens: Sequence[int]) -> None:
        pass


class Penalties:
    """Repetition (Keskar et al., 2019) over prompt and output; presence and frequency over the output."""

    def __init__(self, request: Request, vocab_size: int) -> None:
        params = request.params
        self.repetition, self.presence, self.frequency = (
            params.repetition_penalty,
            params.presence_penalty,
            params.frequency_penalty,
        )
        self.seen = torch.zeros(vocab_size, dtype=torch.bool)
        self.counts = torch.zeros(vocab_size)
        self.seen[request.tokens[: request.prompt_len]] = True
        self.commit(request.tokens[request.prompt_len :])

    def apply(self, logits: Tensor, path: Sequence[int]) -> Tensor:
        seen, counts = self.seen, self.counts
        if path:
            seen, counts = seen.clone(), counts.clone()
            add(seen, counts, path)
        seen, counts = seen.to(logits.device), counts.to(logits.device)
        if self.repetition != 1.0:
            scaled = torch.where(logits > 0, logits / self.repetition, logits * self.repetition)
            logits = torch.where(seen, scaled, logits)
        logits = logits - self.frequency * counts
        return logits - self.presence * (counts > 0)

    def commit(self, tokens: Sequence[int]) -> None:
        add(self.seen, self.counts, tokens)


def add(seen: Tensor, counts: Tensor, tokens: Sequence[int]) -> None:
    for token in tokens:
        seen[token] = True
        counts[token] += 1


class MinTokens:
    """No end before `min_tokens` tokens were generated."""

    def __init__(self, request: Request, ends: Iterable[int]) -> None:
        self.missing = request.params.min_tokens - request.num_generated
        self.ends = sorted(ends)

    def apply(self, logits: Tensor, path: Sequence[int]) -> Tensor:
        if len(path) < self.missing:
            logits[self.ends] = NEVER
        return logits

    def commit(self, tokens: Sequence[int]) -> None:
        self.missing -= len(tokens)


class BadWords:
    """No token that would complete one of the forbidden sequences."""

    def __init__(self, request: Request) -> None:
        self.words = request.params.bad_words
        self.longest = max(len(word) for word in self.words) - 1
        self.tail = tail_of(request.tokens, self.longest)

    def apply(self, logits: Tensor, path: Sequence[int]) -> Tensor:
        tail = tail_of([*self.tail, *path], self.longest)
        for *start, last in self.words:
            if not start or tail[-len(start) :] == start:
                logits[last] = NEVER
        return logits

    def commit(self, tokens: Sequence[int]) -> None:
        self.tail = tail_of([*self.tail, *tokens], self.longest)


def tail_of(tokens: list[int], length: int) -> list[int]:
    return tokens[-length:] if length else []


class BiasProcessor:
    def start(self, request: Request, vocab_size: int) -> Bias | None:
        params = request.params
        if not params.logit_bias and params.allowed_token_ids is None:
            return None
        return Bias(params.logit_bias or {}, params.allowed_token_ids, vocab_size)


class PenaltiesProcessor:
    def start(self, request: Request, vocab_size: int) -> Penalties | None:
        p = request.params
        if (p.repetition_penalty, p.presence_penalty, p.frequency_penalty) == (1.0, 0.0, 0.0):
            return None
        return Penalties(request, vocab_size)


class MinTokensProcessor:
    def __init__(self, eos_token_ids: Sequence[int]) -> None:
        self.eos_token_ids = eos_token_ids

    def start(self, request: Request, vocab_size: int) -> MinTokens | None:
        ends = {*self.eos_token_ids, *request.params.stop_token_ids}
        if request.params.min_tokens <= request.num_generated or not ends:
            return None
        return MinTokens(request, ends)


class BadWordsProcessor:
    def start(self, request: Request, vocab_size: int) -> BadWords | None:
        return BadWords(request) if request.params.bad_words else None
