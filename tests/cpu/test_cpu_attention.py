"""Paged attention: near float64 in every layout, and a row's bits are a function of its own path."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kv_layouts import (
    BY_SLOT,
    BY_SLOT_INT8,
    LAYOUTS,
    PANELS,
    PANELS_INT8,
    each_layout,
    from_layout,
    has_scales,
    keep,
    numbers_of,
    to_layout,
)
from native_cases import (
    DTYPES,
    SETS,
    U_SUM,
    WHOLE_SETS,
    U,
    assert_near,
    each_dtype,
    each_set,
    make_unusual,
    many,
    randn,
    same_bits,
    some,
)
from paged import KEY_LIMIT, Paged, Shape, SpanCase, attention

from covering import covering

if TYPE_CHECKING:
    from torch import Tensor

TREE = (-1, 0, 1, -1, 3, 3, 0, 2, 7, -1)
SHAPES = [
    Shape(kv_heads=2, group=3, dim=32, block_size=16),
    Shape(kv_heads=1, group=1, dim=8, block_size=1),
    Shape(kv_heads=3, group=7, dim=64, block_size=64),
    Shape(kv_heads=2, group=2, dim=80, block_size=16, window=5),
    Shape(kv_heads=1, group=5, dim=128, block_size=1, window=130),
    Shape(kv_heads=2, group=4, dim=24, block_size=64, window=300),
    Shape(kv_heads=2, group=2, dim=64, block_size=16, cap=1.5),
    Shape(kv_heads=1, group=8, dim=64, block_size=16, window=128, sinks=True),
    Shape(kv_heads=2, group=3, dim=32, block_size=16, window=5, cap=50.0, sinks=True),
]
MIXED = [SpanCase(0, 40), *(SpanCase(n, 1) for n in (126, 127, 128)), SpanCase(250, 5, 10, TREE), SpanCase(500, 1, 7)]


@covering(
    ("kept", "isa"), ("kept", "dtype"), ("isa", "dtype", "threads"),
    kept=[(shape, layout) for shape in SHAPES for layout in shape.layouts],
    isa=WHOLE_SETS, dtype=DTYPES, threads=[1, 2],
)  # fmt: skip
def test_attention_is_near_float64(kept: tuple[Shape, str], isa: str, dtype: torch.dtype, threads: int) -> None:
    shape, layout = kept
    paged = Paged(shape, MIXED, dtype, layout)
    out = paged.run(isa, threads)
    # of every probability: rounded to dtype twice, itself and in the row sum; scores of up to 16, sums of up to 512
    relative = 2 * U[dtype] * (dtype == torch.bfloat16) + (16 * (shape.dim + 8) + 600) * U_SUM
    for row in range(len(out)):
        exact, magnitude = paged.reference(row)
        assert_near(out[row], exact, relative * magnitude, dtype)


@st.composite
def span_cases(draw: st.DrawFn) -> SpanCase:
    near_boundaries = st.sampled_from((0, 1, 15, 100, 126, 127, 128, 129, 200, 255, 256, 257, 383, 500))
    start = draw(near_boundaries)
    committed, drafts = draw(st.sampled_from((1, 1, 1, 2, 40))), draw(st.sampled_from((0, 0, 1, 3, 12)))
    parents = tuple(draw(st.integers(-1, node - 1)) for node in range(drafts)) if draw(st.booleans()) else None
    return SpanCase(start, committed, drafts, parents)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    return Shape(
        kv_heads=draw(st.integers(1, 3)),
        group=draw(st.integers(1, 7)),
        dim=draw(st.sampled_from((8, 10, 16, 24, 32, 40, 64, 80, 96, 128))),
        block_size=draw(st.sampled_from((1, 16, 64))),
        window=draw(st.sampled_from((0, 0, 1, 7, 64, 128, 129, 200))),
        cap=draw(st.sampled_from((0.0, 0.0, 0.8, 50.0))),
        sinks=draw(st.booleans()),
    )


def check_rows(isa: str, dtype: torch.dtype, data: st.DataObject) -> None:
    shape = data.draw(shapes())
    layout = data.draw(st.sampled_from(shape.layouts))
    paged = Paged(shape, data.draw(st.lists(span_cases(), min_size=1, max_size=4)), dtype, layout)
    rows = len(paged.q)
    chosen = data.draw(st.sets(st.integers(0, rows - 1), min_size=1, max_size=3))
    others = torch.tensor([row for row in range(rows) if row not in chosen], dtype=torch.int64)
    for x, seed in ((paged.q, 1), (paged.k, 2), (paged.v, 3)):
        x[others] = make_unusual(x[others], seed)
    out = paged.run(isa, data.draw(st.sampled_from((1, 2)), "threads"))
    for row in chosen:
        assert same_bits(out[row : row + 1], paged.decode_alone(row, isa))


@each_set
@each_dtype
@some
@given(data=st.data())
def test_a_row_of_any_batch_has_the_bits_of_its_path_decoded_alone(
    isa: str, dtype: torch.dtype, data: st.DataObject
) -> None:
    check_rows(isa, dtype, data)


@pytest.mark.sweep
@each_set
@each_dtype
@many
@given(data=st.data())
def test_a_row_of_very_many_batches_has_the_bits_of_its_path(isa: str, dtype: torch.dtype, data: st.DataObject) -> None:
    check_rows(isa, dtype, data)


@covering(
    ("isa", "dtype", "layout"), ("isa", "dtype", "threads"), ("layout", "threads"),
    isa=WHOLE_SETS, dtype=DTYPES, layout=LAYOUTS, threads=[1, 2],
)  # fmt: skip
def test_every_draft_token_of_a_tree_has_the_bits_of_its_branch_as_a_chain(
    isa: str, dtype: torch.dtype, layout: str, threads: int
) -> None:
    requests = [SpanCase(120, 1, len(TREE), TREE), SpanCase(30, 1), SpanCase(250, 3, len(TREE), TREE)]
    paged = Paged(SHAPES[0], requests, dtype, layout)
    out = paged.run(isa, threads)
    for row in range(len(out)):
        assert same_bits(out[row : row + 1], paged.decode_alone(row, isa))


@each_set
@each_dtype
@each_layout
def test_a_long_context_split_among_threads_keeps_its_bits(isa: str, dtype: torch.dtype, layout: str) -> None:
    one, two = (Paged(SHAPES[0], [SpanCase(3000, 2, 2)], dtype, layout) for _ in range(2))
    assert same_bits(one.run(isa, 1), two.run(isa, 2))


@each_set
@each_dtype
@each_layout
def test_finite_numbers_are_stored_in_the_rows_slots_and_nowhere_else(
    isa: str, dtype: torch.dtype, layout: str
) -> None:
    paged = Paged(SHAPES[0], [SpanCase(5, 3), SpanCase(100, 1)], dtype, layout)
    before = paged.cache.clone()
    for x in (paged.k, paged.v):
        x[1, 0, :6] = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e30, -1e30, -0.0])
    paged.run(isa, 2)
    keys, values = numbers_of(paged.cache[1][:, paged.new_slots[1], 0], layout)[:, :6].tolist()
    rounding = 2.0**-22 * has_scales(layout)
    assert keys == pytest.approx([0, 0, 0, KEY_LIMIT, -KEY_LIMIT, 0], rel=rounding, abs=0)
    assert values == pytest.approx([0, 0, 0, *paged.v[1, 0, 3:6].tolist()], rel=rounding, abs=0)
    before[1][:, paged.new_slots] = paged.cache[1][:, paged.new_slots]
    assert torch.equal(before.view(torch.int8), paged.cache.view(torch.int8))


@each_set
@each_dtype
@pytest.mark.parametrize("layout", [BY_SLOT_INT8, PANELS_INT8])
def test_integers_and_scales_are_those_of_the_largest_number(isa: str, dtype: torch.dtype, layout: str) -> None:
    paged = Paged(SHAPES[0], [SpanCase(0, 40), SpanCase(20, 3)], dtype, layout)
    for x in (paged.k, paged.v):
        x[3], x[4], x[5, 1] = 0.0, 2.0**-110, 3.0 * 2.0**40
    paged.run(isa, 2)
    for kind, x in enumerate((paged.k, paged.v)):
        assert torch.equal(paged.cache[1, kind, paged.new_slots], keep(x, layout))


@each_set
@each_dtype
@each_layout
def test_a_nan_query_changes_its_own_row_only(isa: str, dtype: torch.dtype, layout: str) -> None:
    paged = Paged(SHAPES[0], [SpanCase(0, 6)], dtype, layout)
    paged.q[2] = float("nan")
    assert paged.run(isa).isnan().flatten(1).any(1).tolist() == [row == 2 for row in range(6)]


@each_set
@each_dtype
@each_layout
def test_equal_scores_at_the_key_limit_have_equal_probabilities(isa: str, dtype: torch.dtype, layout: str) -> None:
    paged = Paged(SHAPES[0], [SpanCase(200, 1)], dtype, layout)
    paged.k[:], paged.v[:], paged.q[:] = KEY_LIMIT, 2.0, 2.0**20
    paged.cache[1, 0, paged.paths[0]] = keep(paged.k[:1], layout)
    paged.cache[1, 1, paged.paths[0]] = keep(paged.v[:1], layout)
    assert ((paged.run(isa).double() / 2.0 - 1.0).abs() <= 2 * U[dtype] * has_scales(layout)).all()


@each_dtype
def test_two_threads_may_call_at_once(dtype: torch.dtype) -> None:
    paged = Paged(SHAPES[0], MIXED, dtype)
    native = attention(SETS[0], 2, paged.cache, paged.shape, BY_SLOT)
    expected = [paged.run(SETS[0], 2, layer) for layer in (0, 1)]

    def call(layer: int) -> Tensor:
        return paged.run_on(native, layer)

    with ThreadPoolExecutor(2) as pool:
        for layer, out in zip((0, 1) * 20, pool.map(call, (0, 1) * 20), strict=True):
            assert same_bits(out, expected[layer])


@covering(("isa", "dtype"), ("layout", "dtype"), isa=WHOLE_SETS, dtype=DTYPES, layout=LAYOUTS)
@given(moves=st.lists(st.tuples(st.integers(0, 63), st.integers(0, 63)), max_size=40, unique_by=lambda move: move[1]))
def test_tokens_move_as_if_all_were_read_before_any_is_written(
    isa: str, dtype: torch.dtype, layout: str, moves: list[tuple[int, int]]
) -> None:
    cache = keep(randn(2, 2, 64, 2, 32, dtype=dtype, seed=len(moves)), layout)
    expected = cache.clone()
    source, target = [move[0] for move in moves], [move[1] for move in moves]
    expected[:, :, target] = cache[:, :, source]
    stored = to_layout(cache, layout)
    shape = Shape(kv_heads=2, group=1, dim=32, block_size=16)
    attention(isa, 1, stored, shape, layout, dtype).move_slots(source, target)
    assert torch.equal(from_layout(stored, layout), expected)


@each_set
@each_dtype
@pytest.mark.parametrize("layouts", [(PANELS, BY_SLOT), (PANELS_INT8, BY_SLOT_INT8)], ids=str)
def test_panels_hold_what_slots_hold(isa: str, dtype: torch.dtype, layouts: tuple[str, str]) -> None:
    paged, other = (Paged(SHAPES[0], [SpanCase(0, 40), SpanCase(90, 3)], dtype, each) for each in layouts)
    used = paged.paths[39] + paged.paths[-1]
    assert same_bits(paged.run(isa, 2), other.run(isa, 1))
    assert torch.equal(paged.cache[1][:, used], other.cache[1][:, used])
