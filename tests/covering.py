"""Products of parameters, of which `make test` runs a covering array and `make test-all` all."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Cell = tuple[object, ...]
Values = tuple[tuple[int, ...], tuple[str, ...]]
"""A group of names, by their numbers, and the value of each."""


def covering(*meet: tuple[str, ...], indirect: Sequence[str] = (), **axes: Iterable[object]) -> pytest.MarkDecorator:
    """All combinations of the axes' values, the first axis outermost, as `covering_cells` has them."""
    return covering_cells(list(axes), list(product(*axes.values())), *meet, indirect=indirect)


def pairwise(*, indirect: Sequence[str] = (), **axes: Iterable[object]) -> pytest.MarkDecorator:
    """`covering` where each two values of different axes meet."""
    return covering(*combinations(axes, 2), indirect=indirect, **axes)


def covering_cells(
    names: Sequence[str], cells: Sequence[Cell], *meet: tuple[str, ...], indirect: Sequence[str] = ()
) -> pytest.MarkDecorator:
    """Parametrises a test with these cells, each of a value for each name.

    `make test` runs so many of them that each value occurs, and for each of `meet`, some of the names, each combination
    of their values that a cell has; the others are sweeps. What meets, or each value where nothing must, is used about
    equally often.
    """
    groups = [tuple(names.index(name) for name in group) for group in (*meet, *([name] for name in names))]
    chosen = chosen_cells([list(map(repr, cell)) for cell in cells], groups)
    parameters = [
        pytest.param(*cell, marks=() if i in chosen else pytest.mark.sweep, id="-".join(map(name_of, cell)))
        for i, cell in enumerate(cells)
    ]
    return pytest.mark.parametrize(names, parameters, indirect=list(indirect))


def chosen_cells(cells: list[list[str]], groups: list[tuple[int, ...]]) -> set[int]:
    """Numbers of the cells that together have what all cells have of each group; found greedily."""
    has = [values_of(cell, groups) for cell in cells]
    meeting = [group for group in groups if len(group) > 1] or groups
    meets = [values_of(cell, meeting) for cell in cells]
    missing, used, chosen = set().union(*has), Counter[Values](), set[int]()
    while missing:
        best = max(range(len(cells)), key=lambda n: (len(has[n] & missing), -sum(used[m] for m in meets[n]), -n))
        chosen.add(best)
        missing -= has[best]
        used.update(meets[best])
    return chosen


def values_of(cell: list[str], groups: list[tuple[int, ...]]) -> set[Values]:
    return {(group, tuple(cell[i] for i in group)) for group in groups}


def name_of(value: object) -> str:
    """Settings as key=value, and values of a tuple in a row."""
    if isinstance(value, dict):
        return ",".join(f"{key}={name_of(each)}" for key, each in value.items())
    if isinstance(value, tuple):
        return "-".join(map(name_of, value))
    name = getattr(value, "__name__", None)
    return name if isinstance(name, str) else str(value)
