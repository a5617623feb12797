"""JSON lines between the benchmark and a process that holds one loaded engine.

Owns the messages and the process's main loop; knows no engine. Standard library only, since it runs in every
environment. The setup is the program's argument; then every line of stdin is a job, answered by one line.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypedDict


class EngineSetup(TypedDict):
    """What an engine is loaded with."""

    model: str
    drafts: str
    """plain, ngram, or eagle3: an EAGLE-3 head."""
    eagle: dict[str, Any]
    """Options of specserve's plugin eagle, whose `model` is the head's directory; empty without that head."""
    threads: int
    max_len: int
    """Prompt and output tokens of the longest request."""
    max_seqs: int
    weights: str
    """auto, int8 or int4: how linear maps keep them."""
    activations: str
    """auto or int8: what 8-bit weights are multiplied by."""


class Job(TypedDict):
    """Requests that start together. Each generates exactly `num_tokens` tokens: end of text is ignored."""

    prompts: list[list[int]]
    num_tokens: int
    temperature: float


class StructuredSetup(EngineSetup):
    """What an engine that serves structured jobs is loaded with."""

    grammar: dict[str, str]
    """Options of specserve's plugin grammar."""


class StructuredJob(Job):
    """Answered in slices, each when it is asked for, and then by `outputs`.

    Under a schema, a request ends where its text is complete, and after `num_tokens` at the latest.
    """

    schema: str
    """JSON; empty: free text of exactly `num_tokens` tokens."""


class HeadSetup(TypedDict):
    """What an engine that drafts with a head is loaded with. It computes in float32, and drafts chains."""

    model: str
    head: str
    kind: str
    """eagle3, dflash or dspark."""
    steps: int
    """Draft tokens of a chain."""
    threads: int
    max_len: int


class Reply(TypedDict, total=False):
    """`error` alone, or the others; the first reply is empty and says that the engine is loaded."""

    seconds: float
    num_tokens: int
    outputs: list[list[int]]
    """The tokens of every request: the last reply to a structured job, and the one of an engine with a head."""
    steps: list[int]
    """Of every request behind its first token, of an engine with a head."""
    error: str


Serve = Callable[[Job], int]
"""Serves a job to its end and returns the number of generated tokens."""


def run_worker(load: Callable[[EngineSetup], Serve]) -> None:
    """Serve jobs; timed is the whole of each."""

    def load_timed(setup: EngineSetup) -> Callable[[Job], Iterator[Reply]]:
        serve = load(setup)
        return lambda job: iter([timed(serve, job)])

    answer_jobs(load_timed)


def answer_jobs(load: Callable[[Any], Callable[[Any], Iterator[Reply]]]) -> None:
    """Load the engine, then answer jobs until stdin ends: every line, a job or null, gets the next reply to the last
    job. What libraries print to stdout goes to stderr."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    try:
        answer = load(json.loads(sys.argv[1]))
        replies.write("{}\n")
        remaining: Iterator[Reply] = iter([])
        for line in sys.stdin:
            if job := json.loads(line):
                remaining = answer(job)
            replies.write(json.dumps(next(remaining)) + "\n")
    except Exception as error:
        replies.write(json.dumps({"error": first_line(error)}) + "\n")
        raise


def timed(serve: Serve, job: Job) -> Reply:
    began = time.perf_counter()
    num_tokens = serve(job)
    return {"seconds": time.perf_counter() - began, "num_tokens": num_tokens}


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
