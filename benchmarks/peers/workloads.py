"""What every engine is asked: kinds of requests, and the jobs of every round.

No prompt is used twice: an n-gram index would know the output from the round before. Knows no engine.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.lib.workload import NUM_TOKENS, PROMPT_LEN, edit_prompt, held_out_prompts, prompts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.peers.workers.wire import Job
    from specserve.protocols import Tokenizer

FILE_LEN = 500
"""Tokens of a file; with the beginning of its edited copy a little more than PROMPT_LEN."""
TEMPERATURE = 0.8
CODE, EDITS, HELD_OUT = "code", "edits", "held-out"
"""What prompts are: files; files and the beginning of an edited copy, so that the output repeats the file; files that
neither the demo model nor its heads were trained on."""


class Workload(NamedTuple):
    """One kind of requests."""

    name: str
    mode: str
    """Which processes serve it: "plain", "ngram" or "eagle3" (drafts in all that have such), or "http"."""
    temperature: float = 0.0
    text: str = CODE


WORKLOADS = (
    Workload("greedy", "plain"),
    Workload("sampled", "plain", TEMPERATURE),
    Workload("ngram-greedy", "ngram"),
    Workload("ngram-edits", "ngram", text=EDITS),
    Workload("ngram-sampled", "ngram", TEMPERATURE),
    Workload("eagle3-greedy", "eagle3", text=HELD_OUT),
    Workload("eagle3-sampled", "eagle3", TEMPERATURE, text=HELD_OUT),
    Workload("http", "http"),
)
MODES = ("plain", "ngram", "eagle3", "http")


class Row(NamedTuple):
    """One line of the table."""

    workload: Workload
    num_requests: int
    jobs: list[Job]
    """One for each round, warm-up first."""

    @property
    def name(self) -> str:
        return f"{self.workload.name}, {self.num_requests} concurrent"


def rows_of(workloads: Sequence[Workload], counts: Sequence[int], num_jobs: int, tokenizer: Tokenizer) -> Iterator[Row]:
    """One row per workload and number of concurrent requests. They share no prompt."""
    held_out = [workload for workload in workloads if workload.text == HELD_OUT]
    others = [workload for workload in workloads if workload.text != HELD_OUT]
    for read, alike in ((prompts, others), (held_out_prompts, held_out)):
        windows = iter(read(tokenizer, len(alike) * sum(counts) * num_jobs, PROMPT_LEN) if alike else ())
        for workload in alike:
            for count in counts:
                jobs = [job_of(workload, list(islice(windows, count)), tokenizer) for _ in range(num_jobs)]
                yield Row(workload, count, jobs)


def job_of(workload: Workload, windows: list[tuple[int, ...]], tokenizer: Tokenizer) -> Job:
    if workload.text == EDITS:
        windows = [edit_prompt(tokenizer, window[:FILE_LEN])[-PROMPT_LEN:] for window in windows]
    prompt_ids = [list(window) for window in windows]
    return {"prompts": prompt_ids, "num_tokens": NUM_TOKENS, "temperature": workload.temperature}
