"""The index from several Python threads: long calls let others run, and corpora may go while they are read."""

from __future__ import annotations

import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from twin.pair import Native, ints
from twin.workload import Workload, write

from specserve_ngram._native import Corpus

if TYPE_CHECKING:
    from collections.abc import Iterator

OPTIONS: dict[str, Any] = {
    "match_type": "learned", "capacity": 700, "generations": 4, "shared": True, "min_match": 1, "max_match": 64,
    "min_breadth": 1, "max_breadth": 10, "max_depth": 16, "min_survival": 0.05,
}  # fmt: skip


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Python switches threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("frequent_switches")
def test_callers_share_an_index() -> None:
    native = Native(**OPTIONS)

    def run(seed: int) -> int:
        workload = Workload(native, Random(seed), ["few", "hub"], length=100, num_namespaces=2)
        for _ in range(150):
            workload.call()
        for request in workload.requests:
            native.stop(request.handle, [])
        return workload.num_nodes

    with ThreadPoolExecutor(3) as pool:
        assert min(pool.map(run, range(3))) > 100
    assert native.native.stats()["requests"] == 0


@pytest.mark.usefixtures("frequent_switches")
def test_corpora_are_replaced_while_they_are_read_and_freed() -> None:
    native, random = Native(**OPTIONS), Random(2)
    text = write(random, "few", 200, [])
    over = threading.Event()

    def replace() -> None:
        while not over.is_set():
            native.add_corpus("x", [text])
            native.remove_corpus("x")

    with ThreadPoolExecutor(1) as pool:
        replacing = pool.submit(replace)
        for at in range(0, 180, 2):
            handle = native.start("", text[:at])
            native.step([handle], text[at : at + 2], [2], [16])
            native.stop(handle, [])
        over.set()
        replacing.result()
    gc.collect()
    assert native.native.stats()["corpora"] == 0


def test_others_run_while_a_corpus_is_built() -> None:
    corpus, random = Corpus(), Random(3)
    document = ints([random.randrange(50_000) for _ in range(400_000)])
    builder = threading.Thread(target=corpus.add, args=(document,))
    builder.start()
    num_iterations = 0
    while builder.is_alive():
        num_iterations += 1
    builder.join()
    assert corpus.num_tokens == 400_000
    assert num_iterations > 10  # one, if the call held the interpreter's lock
