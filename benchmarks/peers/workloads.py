"""What the contenders are asked: kinds of requests, and the jobs of every round.

Owns the cases and their prompts, which no contender sees twice: a drafter with an index would know the answers
from the round before. Knows no contender.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.cases.pays import edited
from benchmarks.lib.workload import NUM_TOKENS, PROMPT_LEN, prompts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.peers.workers.wire import Job

FILE_LEN = 500
"""Tokens of a file whose edited copy the prompt begins: together a little more than PROMPT_LEN."""
TEMPERATURE = 0.8


class Case(NamedTuple):
    """One kind of requests."""

    name: str
    way: str
    """"plain", "lookup" or "http": which processes serve it."""
    temperature: float = 0.0
    edits: bool = False
    """Every prompt is a file and the beginning of an edited copy, so that the output repeats it."""


CASES = (
    Case("greedy", "plain"),
    Case("sampled", "plain", TEMPERATURE),
    Case("ngram-greedy", "lookup"),
    Case("ngram-edits", "lookup", edits=True),
    Case("ngram-sampled", "lookup", TEMPERATURE),
    Case("http", "http"),
)
WAYS = ("plain", "lookup", "http")


class Row(NamedTuple):
    """One line of the table."""

    case: Case
    num_requests: int
    jobs: list[Job]
    """One for each round, warm-up first."""

    @property
    def name(self) -> str:
        return f"{self.case.name}, {self.num_requests} at once"


def rows_of(cases: Sequence[Case], counts: Sequence[int], num_jobs: int, tokenizer: Any) -> Iterator[Row]:
    """The rows of some cases, which share no prompt."""
    supply = iter(prompts(tokenizer, len(cases) * sum(counts) * num_jobs, PROMPT_LEN))
    for case in cases:
        for count in counts:
            yield Row(case, count, [job_of(case, list(islice(supply, count)), tokenizer) for _ in range(num_jobs)])


def job_of(case: Case, windows: list[tuple[int, ...]], tokenizer: Any) -> Job:
    if case.edits:
        windows = [edited(tokenizer, window[:FILE_LEN])[-PROMPT_LEN:] for window in windows]
    prompt_ids = [list(window) for window in windows]
    return {"prompts": prompt_ids, "num_tokens": NUM_TOKENS, "temperature": case.temperature}
