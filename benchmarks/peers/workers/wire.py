"""JSON lines between the benchmark and a process that holds one loaded engine.

Owns both message types and the loop of the process; knows no engine. Standard library only: it runs in every
environment. The setup comes as an argument; then every line read is a job, and one line answers it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import TypedDict


class Setup(TypedDict):
    """What an engine is loaded with."""

    model: str
    lookup: bool
    """With n-gram speculation."""
    threads: int
    max_len: int
    """Prompt and new tokens of the longest request."""
    max_seqs: int


class Job(TypedDict):
    """Requests that begin together. Each gives exactly `num_tokens` tokens: the end of text is ignored."""

    prompts: list[list[int]]
    num_tokens: int
    temperature: float


class Answer(TypedDict, total=False):
    """`error` alone, or the others; the first answer says only that the engine is loaded."""

    seconds: float
    num_tokens: int
    error: str


Run = Callable[[Job], int]
"""Serve a job to its end; returns how many tokens there are."""


def work(load: Callable[[Setup], Run]) -> None:
    """Load, then answer jobs until there are no more. What libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    try:
        serve = load(json.loads(sys.argv[1]))
        answers.write("{}\n")
        for line in sys.stdin:
            answers.write(json.dumps(timed(serve, json.loads(line))) + "\n")
    except Exception as error:
        answers.write(json.dumps({"error": first_line(error)}) + "\n")
        raise


def timed(serve: Run, job: Job) -> Answer:
    began = time.perf_counter()
    num_tokens = serve(job)
    return {"seconds": time.perf_counter() - began, "num_tokens": num_tokens}


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
