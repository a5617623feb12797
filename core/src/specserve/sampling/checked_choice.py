"""Target tokens of rows whose processors forbid tokens: chosen without masks, which are made only where needed.

A mask takes away candidates and changes no score, so the best of all tokens is the best of the allowed ones, if it is
allowed; and where one token alone is allowed, it is the best. The former does not hold with cut-offs (top-k, top-p,
min-p), which depend on which tokens there are, nor beside processors that read a whole row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.faults import BadAnswerError
from specserve.protocols import ScoredRow
from specserve.sampling.cutoffs import has_cutoff
from specserve.sampling.scores import GREEDY_BELOW, ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.protocols import ProcessorState, Sampler


class Trial(NamedTuple):
    """How a row is tried first. `token`: what it is, where that is certain without its logits."""

    row: ScoredRow
    token: int | None = None


def target_tokens(sampler: Sampler, logits: Tensor, rows: Sequence[ScoredRow]) -> list[int]:
    """As `sampler.target_tokens`."""
    vocab_size = logits.shape[1]
    trials = [trial_of(row, vocab_size) if row.request.processors else Trial(row) for row in rows]
    tokens = [-1 if trial.token is None else trial.token for trial in trials]
    choose(sampler, logits, [(i, trial.row) for i, trial in enumerate(trials) if trial.token is None], tokens)
    refused = [
        (i, rows[i]) for i, trial in enumerate(trials) if trial.row.left_out and not allows(trial.row, tokens[i])
    ]
    choose(sampler, logits, refused, tokens)
    return tokens


def choose(sampler: Sampler, logits: Tensor, rows: Sequence[tuple[int, ScoredRow]], tokens: list[int]) -> None:
    """Into tokens[i] what the sampler chooses for each of these."""
    if rows:
        for (i, _), token in zip(rows, sampler.target_tokens(logits, [row for _, row in rows]), strict=True):
            tokens[i] = token


def trial_of(row: ScoredRow, vocab_size: int) -> Trial:
    """Raises RequestFault where a processor raises."""
    request = row.request
    states = request.processors
    checks = [state for state in states if state.only_forbids]
    if not checks:
        return Trial(row)
    for check in checks:
        token = ask(request, check, only_token, check, row.path, vocab_size)
        if token is not None:  # others might forbid it
            return Trial(row, token) if len(checks) == len(states) == 1 else Trial(row)
    params = request.params
    if params.temperature >= GREEDY_BELOW and has_cutoff(params):
        return Trial(row)
    if len(checks) < len(states) and not all(state.has_edits for state in states):
        return Trial(row)
    return Trial(ScoredRow(row.row, request, row.path, checks))


def only_token(check: ProcessorState, path: Sequence[int], vocab_size: int) -> int | None:
    token = check.only(path)
    if token is None or (type(token) is int and 0 <= token < vocab_size):
        return token
    raise BadAnswerError("named a token outside the vocabulary", f"{token!r}; a token is an int below {vocab_size}")


def allows(row: ScoredRow, token: int) -> bool:
    """Raises RequestFault where a processor raises."""
    return all(ask(row.request, check, check.allows, row.path, token) for check in row.left_out)
