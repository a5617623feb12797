"""The Triton kernels compiled for sm_90, and what their PTX must hold. Run as a script, in a process of its own."""

from __future__ import annotations

import json
import re
from functools import partial

import torch

from triton_runs import outcome, ptx_for_sm90

compiled = partial(ptx_for_sm90, floats=("eps",), free=("num_rows",))
"""The number of rows is never specialised on."""


def linear_ptx(dtype, kind):
    """Of every tile."""
    from specserve_cuda.kernels import linear as cuda

    return [linear_ptx_in(each.sizes, kind) for each in cuda.TILES[dtype]]


def linear_ptx_in(tiles, kind):
    from specserve_cuda.kernels import linear as cuda

    return compiled(
        cuda.linear_kernel,
        dict.fromkeys(("x", "weight", "bias", "out"), f"*{kind}"),
        ("num_rows", "width", "weight_stride"),
        {"depth": 4096, "HAS_BIAS": True, "ROWS": tiles.rows, "COLUMNS": tiles.columns, "DEPTH": tiles.depth},
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )


def compile_linear_in_half_precision_uses_tensor_cores_with_float32_sums():
    for dtype, kind in ((torch.bfloat16, "bf16"), (torch.float16, "fp16")):
        few_rows, *more = linear_ptx(dtype, kind)
        assert re.search(r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.", few_rows)
        for columns, ptx in zip((32, 128, 128), more, strict=True):
            assert re.search(rf"wgmma\.mma_async\.sync\.aligned\.m64n{columns}k16\.f32\.", ptx)
        for ptx in (few_rows, *more):
            assert not re.search(r"\b(atom|red)\.", ptx), "sums in memory have no fixed order"


def compile_linear_in_float32_is_not_rounded_to_tf32():
    (ptx,) = linear_ptx(torch.float32, "fp32")
    assert "tf32" not in ptx
    assert "fma.rn.f32" in ptx
    assert not re.search(r"\b(atom|red)\.", ptx)


def compile_the_other_kernels():
    from specserve_cuda.kernels import rows as cuda

    for kind in ("fp32", "bf16", "fp16"):
        p = f"*{kind}"
        compiled(
            cuda.add_and_norm_kernel,
            {"x": p, "added": p, "weight": p, "out": p},
            ("size", "out_stride"),
            {"HAS_ADDED": True, "BLOCK": 4096},
            num_warps=8,
        )
        compiled(
            cuda.rotate_and_write_kernel,
            dict.fromkeys(("qkv", "q_gain", "k_gain", "q", "key_cache", "value_cache"), p)
            | {"cos": "*fp32", "sin": "*fp32", "positions": "*i64", "slots": "*i64"},
            (),
            {"HEADS": 32, "KV_HEADS": 8, "HEAD_DIM": 128, "ROTARY_DIM": 64, "HAS_NORM": True, "BLOCK": 128},
            floats=("eps", "key_limit"),
            num_warps=1,
        )
        compiled(
            cuda.rotary_kernel,
            {"x": p, "cos": "*fp32", "sin": "*fp32", "out": p},
            ("heads", "head_dim", "rotary_dim", "row_stride", "head_stride"),
            {"BLOCK": 128},
            num_warps=1,
        )
        for kernel in (cuda.silu_and_multiply_kernel, cuda.gelu_and_multiply_kernel):
            ptx = compiled(kernel, {"gate_up": p, "out": p}, ("size",), {"BLOCK": cuda.SILU_BLOCK}, num_warps=4)
        assert kind != "bf16" or re.search(r"cvt\.rn\.bf16x?2?\.f32", ptx), "rounds to nearest"


def compile_low_rank_additions_sum_in_order():
    from specserve_cuda.kernels import lowrank as cuda

    sizes = {"PARTS": cuda.PARTS, "FIELDS": cuda.FIELDS, "ROWS": cuda.ROWS, "RANKS": cuda.RANKS}
    for kind in ("fp32", "bf16", "fp16"):
        p, lists = f"*{kind}", {"tiles": "*i32", "table": "*i64"}
        down = compiled(
            cuda.down_kernel,
            {"x": p, "reduced": p, **lists},
            ("num_rows", "depth", "x_stride", "most_ranks"),
            {**sizes, "DEPTH": cuda.DEPTH},
        )
        up = compiled(
            cuda.up_kernel,
            {"reduced": p, "out": p, **lists},
            ("num_rows", "out_stride", "most_ranks"),
            {**sizes, "COLUMNS": cuda.COLUMNS},
        )
        for ptx in (down, up):
            assert not re.search(r"\b(atom|red)\.", ptx), "sums in memory have no fixed order"
            assert "tf32" not in ptx
            assert kind == "fp32" or re.search(r"(mma|wgmma).*\.f32\.", ptx)


def names():
    return [name for name in globals() if name.startswith("compile_")]


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({name: outcome(globals()[name]) for name in names()}))
