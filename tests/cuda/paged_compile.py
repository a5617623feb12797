"""`triton_paged` compiled for sm_90 on a machine without a GPU, and what its code must and must not hold.

Run as a script, in a process where Triton compiles; prints one JSON object: the name of each check to "ok" or its
traceback.
"""

from __future__ import annotations

import json
import re

import torch

from specserve_cuda.attention.paged_plan import tile_config_for
from triton_runs import outcome, ptx_for_sm90

KINDS = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16"}


def paged_ptx(name, dtype, head_dim=128, group=4, capped=False):
    import triton

    from specserve_cuda.attention import paged_kernels as kernels
    from specserve_cuda.kernels.rows import write_kernel

    config, p = tile_config_for(dtype.itemsize, group), KINDS[dtype]
    block_d = triton.next_power_of_2(head_dim)
    heads = {"KV_HEADS": 8, "HEAD_DIM": head_dim}
    tile_sizes = {"GROUP_SIZE": group, "SPLIT_SIZE": config.split_size, "BLOCK_M": config.block_m}
    if name == "write":
        pointers = dict.fromkeys(("keys", "values", "key_cache", "value_cache"), p) | {"slots": "*i64"}
        strides = ("key_row_stride", "key_head_stride", "value_row_stride", "value_head_stride")
        constants = heads | {"BLOCK": block_d}
        return ptx_for_sm90(write_kernel, pointers, strides, constants, floats=("key_limit",), num_warps=1)
    heads["BLOCK_D"] = block_d
    results = dict.fromkeys(("partial_out", "partial_max", "partial_sum"), "*fp32") | {"tiles": "*i64"}
    if name == "merge":
        constants = heads | tile_sizes | {"HAS_SINKS": capped}
        pointers = results | {"sinks": "*fp32", "out": p}
        return ptx_for_sm90(kernels.merge_kernel, pointers, (), constants, num_warps=config.num_warps)
    pointers = dict.fromkeys(("q", "key_cache", "value_cache"), p) | results
    pointers |= dict.fromkeys(("block_ids", "paths", "counts", "items"), "*i64")
    constants = heads | tile_sizes | {"BLOCK_SIZE": 16, "BLOCK_N": config.block_n, "FIRST_KEY": 1}
    constants["HAS_CAP"] = capped
    return ptx_for_sm90(
        kernels.attend_kernel, pointers, ("window",), constants,
        floats=("scale", "soft_cap"), free=("window",), num_warps=config.num_warps, num_stages=config.num_stages,
    )  # fmt: skip


def compile_attention_in_half_precision_uses_tensor_cores_with_float32_sums():
    for dtype, kind in ((torch.bfloat16, "bf16"), (torch.float16, "f16")):
        ptx = paged_ptx("attend", dtype)
        assert re.search(rf"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.{kind}", ptx)
        assert not re.search(r"\b(atom|red)\.", ptx), "sums in memory have no fixed order"


def compile_attention_in_float32_is_not_rounded_to_tf32():
    ptx = paged_ptx("attend", torch.float32)
    assert "tf32" not in ptx
    assert "fma.rn.f32" in ptx
    assert not re.search(r"\b(atom|red)\.", ptx)


def compile_heads_of_other_sizes():
    for dtype, head_dim, group in ((torch.float32, 80, 7), (torch.bfloat16, 20, 24), (torch.float16, 256, 1)):
        for name in ("attend", "merge", "write"):
            paged_ptx(name, dtype, head_dim, group)


def compile_capped_scores_and_sinks():
    for dtype, head_dim, group in ((torch.bfloat16, 256, 2), (torch.bfloat16, 64, 8), (torch.float32, 64, 8)):
        for name in ("attend", "merge"):
            ptx = paged_ptx(name, dtype, head_dim, group, capped=True)
            assert ptx != paged_ptx(name, dtype, head_dim, group)
            assert not re.search(r"\b(atom|red)\.", ptx)


def compile_merging_and_writing():
    for dtype in KINDS:
        for name in ("merge", "write"):
            ptx = paged_ptx(name, dtype)
            assert not re.search(r"\b(atom|red)\.", ptx)


CHECKS = [value for name, value in dict(globals()).items() if name.startswith("compile_")]


if __name__ == "__main__":
    print(json.dumps({check.__name__: outcome(check) for check in CHECKS}))
