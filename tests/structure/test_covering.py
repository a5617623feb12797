"""Of a product of parameters `make test` runs what must meet, and `make test-all` all."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

from covering import covering, covering_cells, pairwise

AXES = {"model": range(7), "kernels": "abcd", "dtype": (float, int)}


def cells(mark):
    """All cells, and those without a mark."""
    parameters = mark.args[1]
    return [p.values for p in parameters], [p.values for p in parameters if not p.marks]


def test_what_must_meet_meets_and_the_others_are_sweeps():
    every, run = cells(covering(("model", "dtype"), ("kernels", "dtype"), **AXES))
    assert every == list(product(*AXES.values()))
    assert {(model, dtype) for model, _, dtype in run} == set(product(AXES["model"], AXES["dtype"]))
    assert {(kernels, dtype) for _, kernels, dtype in run} == set(product(AXES["kernels"], AXES["dtype"]))
    assert len(run) == 7 * 2


def test_pairwise_each_two_values_of_different_axes_meet():
    _, run = cells(pairwise(**AXES))
    for a, b in combinations(range(len(AXES)), 2):
        assert {(cell[a], cell[b]) for cell in run} == set(product(*([*AXES.values()][axis] for axis in (a, b))))
    assert len(run) == 7 * 4, "as many as two of the axes have alone"


def test_pairwise_takes_few_cells_where_axes_are_equally_long():
    _, run = cells(pairwise(a=range(3), b=range(3), c=range(3), d=range(3)))
    assert len(run) <= 12, "nine are the least"


def test_each_value_occurs_about_equally_often():
    _, run = cells(covering(**AXES))
    assert len(run) == 7
    for axis, values in enumerate(AXES.values()):
        count = Counter(cell[axis] for cell in run)
        assert count.keys() == {*values}
        assert max(count.values()) - min(count.values()) <= 1


def test_the_same_cells_are_run_by_every_worker():
    assert cells(covering(("model", "dtype"), **AXES)) == cells(covering(("model", "dtype"), **AXES))


def test_what_no_cell_has_is_not_asked_for():
    every, run = cells(covering_cells(["plugin", "feature"], [("a", 1), ("a", 2), ("b", 2), ("b", 3), ("c", 3)]))
    assert every == [("a", 1), ("a", 2), ("b", 2), ("b", 3), ("c", 3)]
    assert run == [("a", 1), ("b", 2), ("c", 3)]


def test_cells_are_named_by_their_values():
    assert covering(**AXES).args[1][0].id == "0-a-float"
