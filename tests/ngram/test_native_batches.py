"""Large batches, whose drafts two threads build: they are the same as one thread's, and no thread is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from array import array
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from twin.pair import Native, Pair
from twin.workload import write

from specserve_ngram._native import Index, Tuning

if TYPE_CHECKING:
    from twin.index import NativeDraft

LARGE = Tuning.PARALLEL_DRAFTS  # requests with drafts, from which on there are two threads
OPTIONS: dict[str, Any] = {
    "match_type": "learned", "capacity": 20_000, "generations": 4, "shared": True, "min_match": 1, "max_match": 64,
    "min_breadth": 1, "max_breadth": 10, "max_depth": 16, "min_survival": 0.01,
}  # fmt: skip


def run(native: Native, seed: int, length: int, num_steps: int) -> list[list[NativeDraft]]:
    """Steps of 90 requests in three namespaces."""
    random = Random(seed)
    texts = [write(random, "few" if i % 2 else "hub", length, []) for i in range(90)]
    handles = [native.start("abc"[i % 3], text[: length // 2]) for i, text in enumerate(texts)]
    at, drafts = [length // 2] * len(texts), []
    for _ in range(num_steps):
        counts = [random.choice([0, 1, 1, 3]) for _ in texts]
        new = [text[begin : begin + count] for text, begin, count in zip(texts, at, counts, strict=True)]
        limits = [random.choice([0, 1, 4, 16, 40]) for _ in texts]
        tokens = [token for some in new for token in some]
        drafts.append(native.step(handles, tokens, [len(some) for some in new], limits))
        at = [begin + count for begin, count in zip(at, counts, strict=True)]
    return drafts


@pytest.mark.parametrize("match_type", ["learned", "prob", "bfs"])
@pytest.mark.parametrize("capacity", [200, 20_000])
def test_drafts_do_not_depend_on_the_number_of_threads(match_type: Any, capacity: int) -> None:
    options = {**OPTIONS, "match_type": match_type, "capacity": capacity}
    one, two = (run(Native(**options, threads=threads), 1, 120, 40) for threads in (1, 2))
    assert one == two
    assert sum(draft is not None for drafts in two for draft in drafts) > 1000


@pytest.mark.parametrize("capacity", [200, 20_000])
def test_drafts_of_large_batches_are_those_of_the_twin(capacity: int) -> None:
    """With little capacity, updating the sources of one request evicts the generation that another one has."""
    drafts = run(Pair(**{**OPTIONS, "capacity": capacity}), 2, 40, 8)
    assert sum(draft is not None for drafts_of_step in drafts for draft in drafts_of_step) > 100


def step_once(index: Index, num_requests: int) -> None:
    handles = array("q", [index.start("", array("i", [1, 2, 1])) for _ in range(num_requests)])
    none, limits = array("i", [0] * num_requests), array("i", [4] * num_requests)
    assert None not in index.step(handles, array("i"), none, limits)


def test_an_index_ends_at_any_time() -> None:
    for _ in range(300):
        Index(**OPTIONS)
        step_once(Index(**OPTIONS), LARGE)


def threads() -> set[str]:
    """By number. Those of an earlier test may still be ending."""
    return {path.name for path in Path("/proc/self/task").iterdir()}


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_the_second_thread_comes_with_the_first_large_batch_and_goes_with_the_index() -> None:
    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("one processor: the index does without")
    before, index = threads(), Index(**OPTIONS)
    step_once(index, LARGE - 1)
    assert not threads() - before
    for _ in range(3):
        step_once(index, LARGE)
        assert len(threads() - before) == 1
    del index
    deadline = time.monotonic() + 10
    while threads() - before:
        assert time.monotonic() < deadline
        time.sleep(0.001)


FORK = """
import os, sys
from test_native_batches import LARGE, OPTIONS, Index, step_once
index = Index(**OPTIONS)
step_once(index, LARGE)
child = os.fork()
step_once(index, LARGE)
del index
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_steps_and_ends_without_the_thread_that_it_does_not_have() -> None:
    run = [sys.executable, "-W", "ignore", "-c", FORK]
    subprocess.run(run, cwd=Path(__file__).parent, timeout=60, check=True)
