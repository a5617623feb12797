"""What the kernels reach: a forward pass against the memory's own speed, attention and prefill against plain torch.

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

from benchmarks.cases.bitrule import CausalAttention, UntiledKernels, cache_for, prefill
from benchmarks.lib.forwards import BLOCK_SIZE, batch_of, engine_of, kv_bytes, seconds_each, weight_bytes
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.shapes import model_directory
from benchmarks.lib.timing import alternate, medians, spread
from benchmarks.lib.workload import DTYPE, MODEL
from specserve.engine.runner import Runner
from specserve.models.loader import load_model
from specserve.protocols import AttentionSpec
from specserve.testing.drafters import OracleDrafter
from specserve.testing.engines import make_engine, run_requests
from specserve.testing.requests import toy_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.batch.batch import Batch
    from specserve.engine.assembly import Assembled
    from specserve.models.decoder import DecoderModel

CONTEXT, WIDTH, PROMPT = 640, 8, 2048
COUNTS, CONTEXTS = (1, 8, 32), (640, 4096)


def run(options: Options) -> Result:
    parser = argparse.ArgumentParser(prog="python -m benchmarks kernels")
    parser.add_argument("--model", default=MODEL, help="demo, half-billion or a directory")
    name = parser.parse_args(options.rest).model
    product = engine_of(name, options)
    model = product.engine.runner.model
    contenders: dict[str, Callable[[], float]] = {}
    contenders |= forward(product, options) | steps(name, options) | attention(product, options)
    contenders |= prefills(name, product, options)
    taken = alternate(contenders, options.rounds(5, 1), warmup=0)
    middle = medians(taken)
    floor = (weight_bytes(model) + kv_bytes(model, CONTEXT)) / 1e6
    return Result(
        title=f"{name}, {DTYPE}, {options.threads} threads, {product.description['kernels']}",
        columns=("what", "ms", "lowest..highest s"),
        rows=[(what, f"{seconds * 1e3:.3f}", spread(taken[what])) for what, seconds in middle.items()],
        checks=checks(middle),
        notes=[f"A decode step at {CONTEXT} tokens reads {floor:.1f} MB of weights, keys and values."],
        raw=taken,
    )


def checks(middle: dict[str, float]) -> list[Check]:
    found = [
        Check("forward of one request / reading its bytes", middle["forward"] / middle["read"], 2.0, True, "x"),
        Check("step that verifies 8 / step of 1", middle["step of 8"] / middle["step of 1"], 1.3, True, "x"),
        Check("prefill / untiled torch", middle["prefill"] / middle["prefill, untiled torch"], 1.0, True, "x"),
    ]
    for what in middle:
        if what.startswith("attention"):
            found.append(Check(f"{what} / torch", middle[what] / middle[f"torch {what}"], 1.0, True, "x"))
    return found


def forward(product: Assembled, options: Options) -> dict[str, Callable[[], float]]:
    """A decode step's forward pass, and the time in which torch adds up as many bytes of float32."""
    runner, batch = product.engine.runner, batch_of(1, CONTEXT)
    numbers = torch.ones((weight_bytes(runner.model) + kv_bytes(runner.model, CONTEXT)) // 4)
    return {
        "read": partial(with_torch_threads, options.threads, numbers.sum),
        "forward": partial(seconds_each, partial(runner.forward, batch)),
    }


def with_torch_threads(threads: int, action: Callable[[], object]) -> float:
    """torch with its own threads, which it does not have beside the native kernels; with one where that is faster."""
    taken = []
    for count in {1, threads}:
        torch.set_num_threads(count)
        taken.append(seconds_each(action))
    torch.set_num_threads(1)
    return min(taken)


def steps(name: str, options: Options) -> dict[str, Callable[[], float]]:
    """Whole engine steps of one request, plain and with drafts of which every guess is right."""
    request = toy_request("r", range(300, 300 + CONTEXT), max_tokens=96, ignore_eos=True)
    common = {"default_plugins": True, "dtype": DTYPE, "threads": options.threads, "kv_memory": "512M"}
    path = model_directory(name)
    plain = make_engine(path, prefix_cache=False, **common)
    known = run_requests(plain.engine, [request]).tokens()
    drafted = make_engine(path, OracleDrafter(known, WIDTH - 1), prefix_cache=False, **common)

    def step(made: Assembled) -> float:
        engine = made.engine
        engine.add(request)
        while not engine.requests["r"].num_generated:
            engine.step()
        engine.step()
        taken = seconds_each_step(engine.step, 8)
        engine.abort("r")
        return taken

    return {"step of 1": partial(step, plain), "step of 8": partial(step, drafted)}


def seconds_each_step(step: Callable[[], object], count: int) -> float:
    """The median of `count` calls, none of which may be repeated."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        step()
        taken.append(time.perf_counter() - began)
    return median(taken)


def attention(product: Assembled, options: Options) -> dict[str, Callable[[], float]]:
    """Decode attention of all layers: ours over pages, keys written, against torch over contiguous keys and values."""
    runner, model = product.engine.runner, product.engine.runner.model
    found: dict[str, Callable[[], float]] = {}
    for context in CONTEXTS:
        for count in COUNTS:
            if count * -(-context // BLOCK_SIZE) > product.engine.parts.cache.num_blocks:
                continue
            what = f"attention, {count} x {context}"
            found[what] = partial(seconds_each, partial(paged, runner, batch_of(count, context)))
            found[f"torch {what}"] = partial(with_torch_threads, options.threads, contiguous(model, count, context))
    return found


def paged(runner: Runner, batch: Batch) -> None:
    model, backend = runner.model, runner.attention
    q = torch.ones((batch.num_rows, model.num_heads, model.head_dim), dtype=model.dtype)
    k = torch.ones((batch.num_rows, model.num_kv_heads, model.head_dim), dtype=model.dtype)
    plan = backend.plan(batch)
    for layer in range(model.num_layers):
        backend.forward(layer, q, k, k, plan)


def contiguous(model: DecoderModel, count: int, context: int) -> Callable[[], None]:
    q = torch.ones((count, model.num_heads, 1, model.head_dim), dtype=model.dtype)
    shape = (model.num_layers, 2, count, model.num_kv_heads, context, model.head_dim)
    cache = torch.zeros(shape, dtype=model.dtype)

    def attend() -> None:
        for keys, values in cache:
            F.scaled_dot_product_attention(q, keys, values, scale=model.scale, enable_gqa=True)

    return attend


def prefills(name: str, product: Assembled, options: Options) -> dict[str, Callable[[], float]]:
    """A prompt under the bit rule, and all its rows at once in torch with one causal attention call."""
    path = model_directory(name)
    tokens = tuple(i % 300 for i in range(PROMPT))
    free = load_model(path, kernels=UntiledKernels(), dtype=DTYPE)
    for projection in free.projections.values():
        projection.seal(free.kernels.prepare_linear)
    spec = AttentionSpec(free.num_heads, free.num_kv_heads, free.head_dim, free.scale, BLOCK_SIZE, free.sliding_windows)
    rival = Runner(free, free.kernels, CausalAttention(spec, cache_for(free)))
    return {
        "prefill": partial(seconds_each, partial(prefill, product.engine.runner, tokens, [PROMPT])),
        "prefill, untiled torch": partial(
            with_torch_threads, options.threads, partial(prefill, rival, tokens, [PROMPT])
        ),
    }
