"""The native index drafts what its twin drafts, bit for bit, for random calls in random order."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twin.pair import Pair
from twin.workload import Workload


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    min_match = draw(st.integers(1, 4))
    min_breadth = draw(st.integers(1, 3))
    max_depth = draw(st.sampled_from([1, 3, 8, 40]))
    return {
        "match_type": draw(st.sampled_from(["learned", "prob", "bfs"])),
        "capacity": draw(st.sampled_from([41, 80, 150, 300, 700])),
        "generations": draw(st.sampled_from([2, 3, 5, 15])),
        "shared": draw(st.sampled_from([True, True, True, False])),
        "min_match": min_match,
        "max_match": min_match + draw(st.sampled_from([0, 1, 4, 20, 500])),
        "min_breadth": min_breadth,
        "max_breadth": min_breadth + draw(st.sampled_from([0, 1, 6, 29])),
        "max_depth": max_depth,
        "min_survival": draw(st.sampled_from([0.0, 0.01, 0.05, 0.3])),
    }


workloads = given(
    options(),
    st.integers(0, 2**32),
    st.lists(st.sampled_from(["few", "runs", "many", "hub"]), min_size=1, max_size=3, unique=True),
    st.integers(1, 3),
)


def run(options: dict[str, Any], seed: int, styles: list[Any], num_namespaces: int, calls: int, length: int) -> None:
    workload = Workload(Pair(**options), Random(seed), styles, length=length, num_namespaces=num_namespaces)
    workload.start()
    for _ in range(calls):
        workload.call()


@workloads
@settings(max_examples=100, deadline=None, derandomize=True)
def test_drafts_are_those_of_the_twin(options: dict[str, Any], seed: int, styles: list[Any], namespaces: int) -> None:
    run(options, seed, styles, namespaces, calls=60, length=120)


@pytest.mark.parametrize("seed", range(8))
def test_wide_drafts_of_many_unlikely_tokens_are_those_of_the_twin(seed: int) -> None:
    wide = {"min_match": 1, "max_match": 64, "min_breadth": 1, "max_breadth": 30, "max_depth": 8, "min_survival": 0.01}
    options = {"match_type": "learned", "capacity": 500, "generations": 3, "shared": True, **wide}
    run(options, seed, ["few", "hub", "runs"], num_namespaces=2, calls=100, length=120)


@pytest.mark.sweep
@workloads
@settings(max_examples=1000, deadline=None)
def test_many_drafts_are_those_of_the_twin(
    options: dict[str, Any], seed: int, styles: list[Any], namespaces: int
) -> None:
    run(options, seed, styles, namespaces, calls=80, length=250)
