"""The Triton kernels of layers without attention compiled for sm_90. Run as a script, in a process of its own."""

from __future__ import annotations

import json
import re

import torch

from triton_runs import outcome, ptx_for_sm90

KINDS = ("fp32", "bf16", "fp16")
LISTS = dict.fromkeys(("tokens", "operations", "runs", "count"), "*i64")


def fixed_order(ptx):
    assert not re.search(r"\b(atom|red)\.", ptx), "sums in memory have no fixed order"


def compile_short_convolutions():
    from specserve_cuda.kernels import short_conv as cuda

    sizes = {"CHANNELS": 2048, "BLOCK": cuda.CONV_BLOCK}
    for kind in KINDS:
        p = f"*{kind}"
        fixed_order(
            ptx_for_sm90(
                cuda.keep_product_kernel, {"rows": p, "kept": p, "own": "*i64"}, (), sizes, free=("own",), num_warps=4
            )
        )
        pointers = {
            "rows": p,
            "kept": p,
            "weight": "*fp32",
            "bias": "*fp32",
            "before": "*i64",
            "exists": "*i1",
            "out": p,
        }
        constants = {**sizes, "REACH": 2, "HAS_BIAS": True}
        fixed_order(
            ptx_for_sm90(cuda.short_conv_kernel, pointers, (), constants, free=("before", "exists"), num_warps=4)
        )


def compile_gates():
    from specserve_cuda.kernels import gates as cuda

    for kind in KINDS:
        pointers = dict.fromkeys(("x", "gates", "out"), f"*{kind}")
        sizes = ("size", "num_gates", "per_gate")
        ptx_for_sm90(cuda.gate_kernel, pointers, sizes, {"BLOCK": cuda.GATE_BLOCK}, free=("per_gate",), num_warps=4)


def compile_gated_delta_nets():
    """In the sizes of Qwen3.5-9B."""
    from specserve_cuda.kernels import delta_net
    from specserve_cuda.kernels import delta_net_kernels as cuda

    heads, channels = 32, 2 * 16 * 128 + 32 * 128
    places = {
        "ROW": channels + 2 * heads + 4096, "TRAIL": channels + 2 * heads, "STATE": heads * 128 * 128 + 3 * channels,
        "WINDOW": heads * 128 * 128, "CHANNELS": channels, "TAPS": 4, "REACH": 3, "NUM_TRAILS": 64 * 16,
    }  # fmt: skip
    recurrence = {
        "STATE": places["STATE"], "TAPS": 4, "KEY_HEADS": 16, "VALUE_HEADS": heads, "KEY_DIM": 128, "VALUE_DIM": 128,
        "KEYS": 128, "VALUES": delta_net.VALUE_BLOCK,
    }  # fmt: skip
    norm = {"ROW": places["ROW"], "GATE": places["TRAIL"], "VALUE_HEADS": heads, "VALUE_DIM": 128, "BLOCK": 128}
    kernels = (
        (cuda.delta_gates_kernel, {**places, "VALUE_HEADS": heads, "BLOCK": heads}, (), 1),
        (cuda.delta_conv_kernel, {**places, "BLOCK": delta_net.CHANNEL_BLOCK}, (), 4),
        (cuda.delta_recurrence_kernel, recurrence, ("q_scale",), 4),
        (cuda.gated_norm_kernel, norm, ("eps",), 1),
    )
    floats = dict.fromkeys(("states", "dt_bias", "rate", "gates", "taps", "weight"), "*fp32")
    for kind in KINDS:
        known = {**floats, **LISTS, **dict.fromkeys(("rows", "trails", "mixed", "out", "x"), f"*{kind}")}
        for kernel, constants, numbers, warps in kernels:
            pointers = {name: known[name] for name in kernel.arg_names if name in known}
            ptx = ptx_for_sm90(kernel, pointers, (), constants, floats=numbers, free=tuple(LISTS), num_warps=warps)
            fixed_order(ptx)
            assert not re.search(r"\.local\.", ptx), f"{kernel.__name__} keeps numbers in memory of its own"


def names():
    return [name for name in globals() if name.startswith("compile_")]


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({name: outcome(globals()[name]) for name in names()}))
