"""Bad input to the native module: an exception that says what was wrong, never a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from kv_layouts import BY_SLOT, PANELS
from native_cases import SETS, each_dtype, machine, randn, same_bits
from paged import Paged, Shape, SpanCase, attention

from specserve_cpu import _native
from specserve_cpu.attention import native_module
from specserve_cpu.kernels import CpuKernels, PackedLinear

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

FAST = SETS[0]
SHAPE = Shape(kv_heads=2, group=2, dim=8, block_size=16)


@pytest.mark.parametrize(
    ("name", "threads", "message"),
    [
        ("sse", 1, rf"instruction set 'sse' does not run here; this processor has: {', '.join(SETS)}"),
        ("", 1, "instruction set '' does not run here"),
        (FAST, 0, r"threads must be in \[1, 1024\]; got 0"),
        (FAST, -1, r"threads must be in \[1, 1024\]; got -1"),
        (FAST, 1025, r"threads must be in \[1, 1024\]; got 1025"),
    ],
)
def test_a_machine_that_cannot_be_is_refused(name: str, threads: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _native.Machine(name, threads)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.double(), r"x must be float32 \[any, 6\]; got float64 \[3, 6\]"),
        (lambda x: x.bfloat16(), r"x must be float32 \[any, 6\]; got bfloat16 \[3, 6\]"),
        (lambda x: x[:, :5], r"x must be float32 \[any, 6\]; got float32 \[3, 5\]"),
        (lambda x: x[0], r"x must be float32 \[any, 6\]; got float32 \[6\]"),
        (lambda x: x.T.contiguous().T, r"x must be float32 \[any, 6\], contiguous"),
        (lambda x: unaligned(x), "x must be float32 .* at an address that is a multiple of the element size"),
    ],
)
def test_a_linear_map_says_what_it_takes(change: Callable[[Tensor], Tensor], message: str) -> None:
    linear = PackedLinear(machine(FAST), randn(4, 6), None)
    out = torch.full((3, 4), 7.0)
    with pytest.raises(ValueError, match=message):
        linear.native.forward(change(randn(3, 6)), out)
    assert (out == 7).all()


@pytest.mark.parametrize("thing", [None, [[1.0] * 6], "x", torch.empty(3, 6, device="meta")])
def test_what_is_no_tensor_of_the_cpu_is_refused(thing: Any) -> None:
    linear = PackedLinear(machine(FAST), randn(4, 6), None)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        linear.native.forward(thing, torch.empty(3, 4))


def test_the_result_must_fit_too() -> None:
    linear = PackedLinear(machine(FAST), randn(4, 6), None)
    for out in (torch.empty(2, 4), torch.empty(3, 5), torch.empty(3, 4).bfloat16(), torch.empty(4, 3).T):
        with pytest.raises(ValueError, match=r"out must be float32 \[3, 4\]"):
            linear.native.forward(randn(3, 6), out)


@pytest.mark.parametrize(
    ("weight", "bias", "message"),
    [
        (randn(0, 4), None, "weight must have outputs"),
        (randn(4, 0), None, "weight must have outputs"),
        (randn(4), None, r"weight must be float32 \[any, any\]; got float32 \[4\]"),
        (randn(4, 6)[:, ::2], None, r"weight must be float32 \[any, any\], contiguous"),
        (randn(4, 6), randn(5), r"bias must be float32 \[4\]; got float32 \[5\]"),
        (randn(4, 6), randn(4).double(), r"bias must be float32 \[4\]; got float64 \[4\]"),
    ],
)
def test_a_weight_that_cannot_be_packed_is_refused(weight: Tensor, bias: Tensor | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _native.float32.PackedLinear(machine(FAST), weight, bias)


@each_dtype
def test_row_wise_kernels_refuse_wrong_tensors(dtype: torch.dtype) -> None:
    module, m = native_module(dtype), machine(FAST)
    x, weight, angles = randn(3, 2, 8, dtype=dtype), randn(8, dtype=dtype), randn(3, 1, 8)
    refused: list[tuple[str, Callable[[], object]]] = [
        ("weight must be", lambda: module.rms_norm(m, x, weight[0], 1e-6, x)),
        ("x must be", lambda: module.rms_norm(m, x, weight[:6], 1e-6, x)),
        ("out must be", lambda: module.rms_norm(m, x, weight, 1e-6, x[:, :1])),
        ("cos must be", lambda: module.apply_rope(m, x, angles[:2], angles)),
        ("sin must be", lambda: module.apply_rope(m, x, angles, angles[..., :6])),
        ("an even number of columns", lambda: module.apply_rope(m, x, randn(3, 1, 7), randn(3, 1, 7))),
        ("at most a head's", lambda: module.apply_rope(m, randn(3, 2, 6, dtype=dtype), angles, angles)),
        ("an even number of columns", lambda: module.silu_and_multiply(m, x[:, 0, :7], x[:, 0, :3])),
    ]
    for message, call in refused:
        with pytest.raises(ValueError, match=message):
            call()


@each_dtype
def test_an_empty_batch_is_accepted(dtype: torch.dtype) -> None:
    kernels = CpuKernels(machine(FAST, 2), str(dtype).removeprefix("torch."))
    none, angles = torch.empty(0, 2, 8, dtype=dtype), torch.empty(0, 1, 8)
    assert kernels.rms_norm(none, randn(8, dtype=dtype), 1e-6).shape == (0, 2, 8)
    assert kernels.rotary(none, angles, angles).shape == (0, 2, 8)
    assert kernels.silu_and_multiply(none[:, 0]).shape == (0, 4)
    assert Paged(SHAPE, [], dtype).run(FAST, 2).shape == (0, 4, 8)


@pytest.mark.parametrize(
    ("start", "length", "num_committed", "blocks", "parents"),
    [
        (-1, 1, 1, [0], ()),
        (0, 0, 0, [0], ()),
        (0, 1, -1, [0], ()),
        (0, 1, 2, [0], ()),
        (0, 1, -(2**31), [0], ()),
        (0, 17, 17, [0], ()),
        (2**31 - 1, 2, 2, [0], ()),
        (0, 1, 1, [-1], ()),
        (0, 4, 1, [0], (-1, 0)),
        (0, 4, 1, [0], (-1, 0, 2)),
        (0, 4, 1, [0], (-1, -2, 0)),
        (0, 4, 1, [0], (5, 0, 1)),
    ],
)
def test_a_request_that_cannot_be_planned_changes_nothing(
    start: int, length: int, num_committed: int, blocks: list[int], parents: tuple[int, ...]
) -> None:
    plan = _native.AttentionPlan(16, 4)
    plan.add(0, 3, 3, [1], ())
    with pytest.raises(ValueError, match=f"a request of {length} rows from token {start} does not fit"):
        plan.add(start, length, num_committed, blocks, parents)
    assert plan.num_rows == 3


@pytest.mark.parametrize("sizes", [(0, 4), (16, 0), (-1, 4)])
def test_a_plan_with_wrong_sizes_is_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        _native.AttentionPlan(*sizes)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (SHAPE._replace(group=0), "num_heads must be a multiple of the KV heads; got 0 and 2"),
        (SHAPE._replace(group=-1), "num_heads must be a multiple of the KV heads; got -2 and 2"),
        (SHAPE._replace(dim=0), "head_dim must be at least 1 and, in bfloat16, even; got 0"),
        (SHAPE._replace(dim=7), "head_dim must be at least 1 and, in bfloat16, even; got 7"),
        (SHAPE._replace(kv_heads=0), "num_heads must be a multiple of the KV heads; got 0 and 0"),
    ],
)
def test_wrong_numbers_of_heads_are_refused(shape: Shape, message: str) -> None:
    cache = torch.zeros(1, 2, 16, shape.kv_heads, shape.dim, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=message):
        attention(FAST, 1, cache, shape._replace(dim=8), BY_SLOT)


def test_the_cache_must_have_five_dimensions() -> None:
    with pytest.raises(ValueError, match=r"cache must be float32 .any, 2, any, any, any.; got float32 .2, 16, 2, 8."):
        attention(FAST, 1, torch.zeros(2, 16, 2, 8), SHAPE, BY_SLOT)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"layer": 2}, r"layer must be in \[0, 2\); got 2"),
        ({"layer": -1}, r"layer must be in \[0, 2\); got -1"),
        ({"slots": torch.tensor([10**6, 0, 1])}, r"slots must be in \[0, 48\); got 1000000"),
        ({"slots": torch.tensor([-1, 0, 1])}, r"slots must be in \[0, 48\); got -1"),
        ({"slots": torch.tensor([0, 1])}, r"slots must be int64 \[3\]; got int64 \[2\]"),
        ({"slots": torch.tensor([0, 1, 2], dtype=torch.int32)}, r"slots must be int64 \[3\]; got int32 \[3\]"),
        ({"k": randn(3, 1, 8)}, r"k must be float32 \[3, 2, 8\]; got float32 \[3, 1, 8\]"),
        ({"out": randn(2, 4, 8)}, r"out must be float32 \[3, 4, 8\]; got float32 \[2, 4, 8\]"),
        ({"blocks": [3]}, "the plan's blocks reach slot 63; the cache has 48"),
        ({"rows": 2}, "the plan is for 2 rows; got 3"),
    ],
)
def test_attention_refuses_wrong_arguments(wrong: dict[str, Any], message: str) -> None:
    paged = Paged(SHAPE, [SpanCase(0, 3)], torch.float32)
    native = attention(FAST, 2, paged.cache, SHAPE, BY_SLOT)
    plan, rows = _native.AttentionPlan(16, 4), wrong.get("rows", 3)
    plan.add(0, rows, rows, wrong.get("blocks", [0]), ())
    given = {"layer": 0, "q": paged.q, "k": paged.k, "v": paged.v, "slots": paged.new_slots}
    given |= {"out": torch.empty_like(paged.q)} | {key: wrong[key] for key in wrong if key not in ("rows", "blocks")}
    before = paged.cache.clone()
    with pytest.raises(ValueError, match=message):
        native.forward(*(given[name] for name in ("layer", "q", "k", "v", "slots")), plan, given["out"])
    assert same_bits(before, paged.cache)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([(0, 0.0, None)], "rules must be of the cache's 2 layers; got 1"),
        ([(0, 0.0, None), (-1, 0.0, None)], "window must be at least 0"),
        ([(0, 0.0, None), (0, -2.0, None)], "soft_cap must be at least 0"),
        ([(0, float("nan"), None)] * 2, "soft_cap must be at least 0"),
        ([(0, 0.0, torch.zeros(3))] * 2, r"sinks must be float32 \[4\]; got float32 \[3\]"),
        ([(0, 0.0, torch.zeros(4, dtype=torch.bfloat16))] * 2, r"sinks must be float32 \[4\]; got bfloat16 \[4\]"),
    ],
)
def test_attention_refuses_wrong_rules_of_layers(rules: list[tuple[int, float, Any]], message: str) -> None:
    cache = torch.zeros(2, 2, 16, 2, 8)
    with pytest.raises(ValueError, match=message):
        _native.float32.PagedAttention(machine(FAST, 1), cache, BY_SLOT, SHAPE.num_heads, 1.0, 1e9, rules)


def test_panels_refuse_wrong_sizes() -> None:
    shape = SHAPE._replace(dim=16)
    cache = torch.zeros(1, 2, 40, 2, 16)
    with pytest.raises(ValueError, match="layout must be by_slot, panels, by_slot-int8 or panels-int8; got rows"):
        attention(FAST, 1, cache, shape, "rows")
    with pytest.raises(ValueError, match="panels need slots and head_dim that are multiples of 16; got 40 and 16"):
        attention(FAST, 1, cache, shape, PANELS)
    with pytest.raises(ValueError, match="panels need slots and head_dim that are multiples of 16; got 32 and 8"):
        attention(FAST, 1, torch.zeros(1, 2, 32, 2, 8), SHAPE, PANELS)
    native, plan, q = (
        attention(FAST, 1, torch.zeros(1, 2, 32, 2, 16), shape, PANELS),
        _native.AttentionPlan(8, 4),
        randn(1, 4, 16),
    )
    plan.add(0, 1, 1, [0], ())
    with pytest.raises(ValueError, match="panels need blocks of a multiple of 16; got 8"):
        native.forward(0, q, q[:, :2], q[:, :2], torch.tensor([0]), plan, torch.empty_like(q))
    with pytest.raises(ValueError, match=r"slots must be in \[0, 32\); got 32"):
        native.move_slots([0], [32])
    with pytest.raises(ValueError, match="source and target must have the same length"):
        native.move_slots([0, 1], [2])


def unaligned(x: Tensor) -> Tensor:
    """A copy of x at an address that is not aligned."""
    raw = bytearray(1 + x.numel() * x.element_size())
    copy = torch.frombuffer(raw, dtype=x.dtype, offset=1, count=x.numel()).view(x.shape)
    return copy.copy_(x)
