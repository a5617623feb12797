"""What the kernels reach: a forward pass against memory bandwidth, attention and prefill against plain torch.

Runs on the demo model and, with `--model half-billion`, on the shape of Qwen2.5-0.5B with random weights.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from benchmarks.lib.forwards import (
    BLOCK_SIZE,
    batch_of,
    engine_of,
    kv_bytes,
    median_seconds,
    paged_attention,
    weight_bytes,
    write_cache,
)
from benchmarks.lib.prefill import LENGTH, CausalAttention, UntiledKernels, cache_for, prefill, spec_for
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.shapes import MODEL_HELP, model_directory
from benchmarks.lib.timing import alternate, medians, spread
from benchmarks.lib.workload import DTYPE, MODEL
from specserve.models.loader import load_model
from specserve.models.runner import Runner, StepParts
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import toy_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.engine.assembly import Assembled
    from specserve.models.served_model import ServedModel

    Variants = dict[str, Callable[[], float]]

CONTEXT, WIDTH = 640, 8
SHAPES = ((1, 640), (8, 640), (32, 640), (64, 640), (8, 4096))
"""Requests and context of decode attention."""
MOST_OF_TORCH = 32 * 640
"""Tokens up to which torch's attention, which is slow on some processors, is timed beside it."""
MANY = 32
"""Requests of a forward pass that reads more keys and values than weights."""


def run(options: Options) -> Result:
    parser = argparse.ArgumentParser(prog="python -m benchmarks kernels")
    parser.add_argument("--model", default=MODEL, help=MODEL_HELP)
    name = parser.parse_args(options.rest).model
    assembled = engine_of(name, options)
    write_cache(assembled)
    model = assembled.engine.runner.model
    variants = forward(assembled, options) | steps(name, options) | attention(assembled, options)
    variants |= prefills(name, assembled, options)
    samples = alternate(variants, options.rounds(5, 1), warmup=0)
    median = medians(samples)
    megabytes = (weight_bytes(model) + kv_bytes(model, CONTEXT)) / 1e6
    return Result(
        title=f"{name}, {DTYPE}, {options.threads} threads, {assembled.description['kernels']}",
        columns=("what", "ms", "min..max s"),
        rows=[(what, f"{seconds * 1e3:.3f}", spread(samples[what])) for what, seconds in median.items()],
        checks=checks(median),
        notes=[f"A decode step at {CONTEXT} tokens reads {megabytes:.1f} MB of weights, keys and values."],
        raw=samples,
    )


def checks(median: dict[str, float]) -> list[Check]:
    found = [
        Check("forward of one request / reading its bytes", median["forward"] / median["read"], 2.0, True, "x"),
        Check(
            f"forward of {MANY} requests / reading its bytes", median[f"forward, {MANY}"] / median[f"read, {MANY}"],
            1.5, True, "x",
        ),
        Check("step that verifies 8 / step of 1", median["step of 8"] / median["step of 1"], 1.25, True, "x"),
        Check("prefill / untiled torch", median["prefill"] / median["prefill, untiled torch"], 1.0, True, "x"),
    ]  # fmt: skip
    for what in median:
        if what.startswith("attention"):
            speed = median[f"read of {what}"] / median[what]
            found.append(Check(f"bandwidth of {what} / of a plain read", speed, 0.75, False, "x"))
            if (torch_seconds := median.get(f"torch {what}")) is not None:
                found.append(Check(f"{what} / torch", median[what] / torch_seconds, 1.0, True, "x"))
    return found


def forward(assembled: Assembled, options: Options) -> Variants:
    """Forward passes of decode steps, and the time in which torch sums as many bytes of float32."""
    runner = assembled.engine.runner
    found: Variants = {}
    for count, suffix in ((1, ""), (MANY, f", {MANY}")):
        num_bytes = weight_bytes(runner.model) + count * kv_bytes(runner.model, CONTEXT)
        found[f"read{suffix}"] = plain_read(num_bytes, options)
        found[f"forward{suffix}"] = partial(median_seconds, partial(runner.forward, batch_of(count, CONTEXT)))
    return found


def plain_read(num_bytes: int, options: Options) -> Callable[[], float]:
    return partial(with_torch_threads, options.threads, torch.ones(num_bytes // 4).sum)


def with_torch_threads(threads: int, action: Callable[[], object]) -> float:
    """The faster of one torch thread and `threads`. With native kernels torch otherwise has one thread."""
    seconds = []
    for count in {1, threads}:
        torch.set_num_threads(count)
        seconds.append(median_seconds(action))
    torch.set_num_threads(1)
    return min(seconds)


def steps(name: str, options: Options) -> Variants:
    """Engine steps of one request, plain and with drafts that are always accepted."""
    request = toy_request("r", range(300, 300 + CONTEXT), max_tokens=96, ignore_eos=True)
    path = model_directory(name)

    def assembled(drafter: OracleDrafter | None = None) -> Assembled:
        return make_engine(
            path, drafter, default_plugins=True, prefix_cache=False, dtype=DTYPE, threads=options.threads,
            kv_memory="512M",
        )  # fmt: skip

    plain = assembled()
    output_tokens = run_requests(plain.engine, [request]).tokens()
    speculative = assembled(OracleDrafter(output_tokens, WIDTH - 1))

    def step(assembled: Assembled) -> float:
        engine = assembled.engine
        engine.add(request)
        while not engine.requests["r"].num_generated:
            engine.step()
        engine.step()
        seconds = median_of_calls(engine.step, 8)
        engine.abort("r")
        return seconds

    return {"step of 1": partial(step, plain), "step of 8": partial(step, speculative)}


def median_of_calls(action: Callable[[], object], count: int) -> float:
    """For calls that have an effect: exactly `count` of them, none as a warm-up."""
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - began)
    return median(seconds)


def attention(assembled: Assembled, options: Options) -> Variants:
    """Decode attention of all layers: the engine's over pages, keys and values written, a plain read of as many bytes,
    and torch's over contiguous keys and values."""
    runner, model = assembled.engine.runner, assembled.engine.runner.model
    found: Variants = {}
    for count, context in SHAPES:
        if count * -(-context // BLOCK_SIZE) > assembled.engine.parts.cache.num_blocks:
            continue
        what = f"attention, {count} x {context}"
        found[what] = partial(median_seconds, partial(paged_attention, runner, batch_of(count, context)))
        found[f"read of {what}"] = plain_read(count * kv_bytes(model, context), options)
        if count * context <= MOST_OF_TORCH:
            torch_attention = contiguous_attention(model, count, context)
            found[f"torch {what}"] = partial(with_torch_threads, options.threads, torch_attention)
    return found


def contiguous_attention(model: ServedModel, count: int, context: int) -> Callable[[], None]:
    q = torch.ones((count, model.num_heads, 1, model.head_dim), dtype=model.dtype)
    shape = (model.num_layers, 2, count, model.num_kv_heads, context, model.head_dim)
    cache = torch.ones(shape, dtype=model.dtype)

    def attend() -> None:
        for keys, values in cache:
            F.scaled_dot_product_attention(q, keys, values, scale=model.scale, enable_gqa=True)

    return attend


def prefills(name: str, assembled: Assembled, options: Options) -> Variants:
    """A batch-invariant prompt, and all its rows at once in torch with one causal attention call."""
    tokens = tuple(i % 300 for i in range(LENGTH))
    untiled = load_model(model_directory(name), kernels=UntiledKernels(), dtype=DTYPE)
    for projection in untiled.projections.values():
        projection.finalize(untiled.kernels)
    reference = Runner(StepParts(untiled, untiled.kernels, CausalAttention(spec_for(untiled), cache_for(untiled))))
    return {
        "prefill": partial(median_seconds, partial(prefill, assembled.engine.runner, tokens, [LENGTH])),
        "prefill, untiled torch": partial(
            with_torch_threads, options.threads, partial(prefill, reference, tokens, [LENGTH])
        ),
    }
