"""Capacity holds whatever comes, and what is dropped is freed."""

from __future__ import annotations

from array import array
from random import Random
from typing import Any

import pytest
from twin.pair import Native
from twin.workload import Style, Workload

from specserve_ngram._native import Index

OPTIONS: dict[str, Any] = {
    "match_type": "learned", "capacity": 1000, "generations": 15, "shared": True, "min_match": 1, "max_match": 64,
    "min_breadth": 1, "max_breadth": 10, "max_depth": 16, "min_survival": 0.05,
}  # fmt: skip
STYLES: list[Style] = ["few", "runs", "many", "hub"]


def ints(values: list[int]) -> array[int]:
    return array("i", values)


def serve(index: Index, namespace: str, prompt: list[int]) -> None:
    index.stop(index.start(namespace, ints(prompt)), ints([]))


@pytest.mark.parametrize("style", STYLES)
def test_tokens_stay_within_capacity_and_bytes_within_bounds(style: Style) -> None:
    native, random = Native(**OPTIONS), Random(3)
    workload = Workload(native, random, [style], length=400, num_namespaces=3)
    most = 0
    for _ in range(400):
        workload.call()
        most = max(most, native.native.stats()["bytes"] - 20_000 * len(workload.requests))
    assert native.native.stats()["evicted_generations"] > 20
    assert most < 1_500_000


def test_what_requests_without_drafts_leave_behind_is_freed() -> None:
    """They never step: starting and stopping frees, too."""
    index, random = Index(**OPTIONS), Random(4)
    sizes = []
    for _ in range(30):
        for _ in range(20):
            serve(index, "", [random.randrange(50) for _ in range(500)])
        sizes.append(index.stats()["bytes"])
    assert max(sizes[10:]) < 1.5 * max(sizes[:10])


def test_a_long_prompt_in_a_small_index_is_freed() -> None:
    index, random = Index(**OPTIONS), Random(5)
    serve(index, "", [random.randrange(50) for _ in range(8000)])
    assert index.stats()["evicted_generations"] > 100
    assert index.stats()["bytes"] < 500_000


def test_a_namespace_costs_nothing_once_its_text_is_gone() -> None:
    index = Index(**OPTIONS)
    for i in range(2000):
        serve(index, f"tenant {i}", [1, 2, 3])
    few = index.stats()
    for i in range(2000):
        serve(index, f"nobody {i}", [])
        serve(index, f"others {i}", [1, 2, 3])
    many = index.stats()
    assert many["generations"] == few["generations"] == 1000 // 64
    assert many["bytes"] == few["bytes"]


def test_a_request_costs_nothing_once_it_has_stopped() -> None:
    index = Index(**{**OPTIONS, "shared": False})
    before = index.stats()["bytes"]
    handles = [index.start(f"tenant {i}", ints(list(range(500)))) for i in range(20)]
    assert index.stats()["bytes"] > before + 20 * 500 * 32
    for handle in handles:
        index.stop(handle, ints([1]))
    assert index.stats()["bytes"] == before
    assert index.stats()["tokens"] == 0


def test_the_newest_generation_stays_although_it_alone_exceeds_the_capacity() -> None:
    index = Index(**{**OPTIONS, "capacity": 40, "generations": 2})
    for name in "abc":
        serve(index, name, [1, 2, 3, 4, 5])
    assert index.stats()["generations"] == 1
    assert index.stats()["tokens"] == 5
