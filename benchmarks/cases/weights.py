"""Weights of 8 and 4 bits, and keys and values of 8, against bfloat16: the loss on held-out text and decoding speed.

The loss is the mean of -log p(next token) over windows of files that the demo model was not trained on, each window a
prompt whose rows are all scored. With `--model half-billion` weights are random, so there is no loss to state.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from benchmarks.lib.decoding import Decoded, decode_in_slices
from benchmarks.lib.forwards import engine_of, kv_bytes, weight_bytes
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.shapes import MODEL_HELP
from benchmarks.lib.timing import alternate, medians, spread
from benchmarks.lib.workload import DTYPE, MODEL, greedy, held_out_prompts
from specserve.batch.builder import BatchBuilder
from specserve.batch.request import Request
from specserve.batch.span import ScheduledSpan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.engine.assembly import Assembled

KINDS = {
    "bfloat16": {},
    "weights int8": {"weights": "int8"},
    "weights int8-g64": {"weights": "int8-g64"},
    "weights, activations int8": {"weights": "int8", "activations": "int8"},
    "weights, activations int8-g64": {"weights": "int8-g64", "activations": "int8"},
    "weights int4": {"weights": "int4"},
    "weights int4, activations float": {"weights": "int4", "activations": "float"},
    "kv int8": {"kv": "int8"},
    "both int8": {"weights": "int8", "kv": "int8"},
}
"""Options of the cpu plugin."""
COUNTS = (1, 8, 32)
WINDOW, PROMPT_LEN, NUM_TOKENS, BLOCK_SIZE = 1024, 640, 48, 16
LOSS_TARGET, LOSS_TARGET_IN_FOUR, SPEED_TARGET = 1.005, 1.02, 1.7


def run(options: Options) -> Result:
    parser = argparse.ArgumentParser(prog="python -m benchmarks weights")
    parser.add_argument("--model", default=MODEL, help=MODEL_HELP)
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="concurrent requests")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), help="beside bfloat16")
    parser.add_argument("--rounds", type=int, help="of decoding")
    args = parser.parse_args(options.rest)
    name, counts = args.model, tuple(sorted(args.counts))
    kinds = {kind: table for kind, table in KINDS.items() if kind == "bfloat16" or kind in args.kinds}
    engines = {kind: engine_of(name, options, plugin_options={"cpu": table}) for kind, table in kinds.items()}
    windows = held_out_prompts(next(iter(engines.values())).tokenizer, options.rounds(64, 4), WINDOW)
    losses = {kind: loss(engine, windows) for kind, engine in engines.items()} if name == MODEL else {}
    prompts = windows * (1 + max(counts) // len(windows))
    variants = {
        f"{kind}, {count}": partial(decode_rate, engine, [prompt[:PROMPT_LEN] for prompt in prompts[:count]])
        for count in counts
        for kind, engine in engines.items()
    }
    samples = alternate(variants, args.rounds or options.rounds(3, 1))
    median = medians(samples)
    rows, checks = [], []
    for kind in kinds:
        of_kind = [median[f"{kind}, {count}"] for count in counts]
        ratios = [rate / median[f"bfloat16, {count}"] for rate, count in zip(of_kind, counts, strict=True)]
        shown = [f"{rate:.0f} ({ratio:.2f})" for rate, ratio in zip(of_kind, ratios, strict=True)]
        rows.append((kind, f"{losses[kind]:.4f}" if losses else "-", *shown))
        if kind == "weights int8" and counts[0] == 1:
            checks.append(Check("weights int8, one request / bfloat16", ratios[0], SPEED_TARGET, False, "x"))
        if kind != "bfloat16" and losses:
            target = LOSS_TARGET_IN_FOUR if "int4" in kind else LOSS_TARGET
            checks.append(Check(f"{kind}, loss / bfloat16", losses[kind] / losses["bfloat16"], target, True, "x"))
    model = engines["bfloat16"].engine.runner.model
    return Result(
        title=f"{name}, {DTYPE}, {options.threads} threads, {engines['bfloat16'].description['kernels']}",
        columns=("kept as", "loss", *(f"tokens/s at {count}" for count in counts)),
        rows=rows,
        checks=checks,
        notes=[
            f"Decoding only: prompts of {PROMPT_LEN} tokens are computed before, then {NUM_TOKENS} tokens each.",
            f"A step reads {weight_bytes(model) / 1e6:.0f} MB of weights in bfloat16, and of each request "
            f"{kv_bytes(model, PROMPT_LEN) / 1e6:.0f} MB of keys and values.",
            f"Loss over {len(windows)} x {WINDOW} tokens.",
            *(f"{what}: {spread(values)}" for what, values in samples.items()),
        ],
        raw=samples,
    )


def loss(assembled: Assembled, windows: Sequence[tuple[int, ...]]) -> float:
    """Mean nats per token, of windows of equal length."""
    total = 0.0
    for window in windows:
        length = len(window)
        request = Request.admit(greedy("loss", window, 1), seed=0, arrival=0.0, order=0, max_len=length + 1)
        request.blocks = list(range(-(-length // BLOCK_SIZE)))
        span = ScheduledSpan.of(request, 0, length, scored=length)
        batch = BatchBuilder(BLOCK_SIZE, torch.device("cpu")).schedule([span])
        logits = assembled.engine.runner.forward(batch).logits
        total += F.cross_entropy(logits[:-1], torch.tensor(window[1:])).item()
    return total / len(windows)


def decode_rate(assembled: Assembled, prompts: Sequence[tuple[int, ...]]) -> float:
    """Tokens a second, prefill not counted."""
    requests = [greedy(f"r{i}", prompt, NUM_TOKENS) for i, prompt in enumerate(prompts)]
    total = Decoded()
    for part in decode_in_slices(assembled.engine, requests):
        total = total.plus(part)
    return total.throughput
