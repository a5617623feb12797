"""How near prompts and decoding are to what the cores can multiply at most, by instruction set of the plugin cpu.

The demo model in bfloat16 without drafts: prompts of 600 tokens, and steps of 8 and 32 requests behind them. Counted
are the multiply-accumulates of linear maps and attention; what else a step takes lowers the share. The peak is that of
the instruction that multiplies weights of 16 bits, measured in the same run on as many threads.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.lib.decoding import Decoded, decode_while_all_run
from benchmarks.lib.multiply_peak import INSTRUCTIONS, multiply_peak
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.workload import DTYPE, MANY, MODEL, NUM_TOKENS, PROMPT_LEN, demo_engine, greedy, prompts
from specserve.models.locate import locate_model
from specserve.models.read_config import read_config
from specserve_cpu._native import instruction_sets

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.engine.assembly import Assembled
    from specserve.models.config import ModelConfig

COUNTS, NUM_PROMPTS = (8, MANY), 8
TARGET = 0.75
"""Of the peak: a goal for AVX2, where arithmetic is what a step takes."""
JUDGED = "avx2"


def run(options: Options) -> Result:
    parser = argparse.ArgumentParser(prog="python -m benchmarks roofline")
    known = [name for name in instruction_sets() if name in INSTRUCTIONS]
    parser.add_argument("--sets", nargs="+", choices=known, default=known)
    chosen: list[str] = parser.parse_args(options.rest).sets
    config = read_config(locate_model(MODEL))
    rows: list[tuple[str, ...]] = []
    checks: list[Check] = []
    raw: dict[str, list[float]] = {}
    for name in chosen:
        assembled = demo_engine(options, plugin_options={"cpu": {"instruction_set": name}})
        works: dict[str, Callable[[], float]] = {"prompts": partial(prompt_products, assembled, config)}
        for count in COUNTS:
            works[f"{count} requests"] = partial(decode_products, assembled, config, count)
        for work, rate_of in works.items():
            rate_of()
            rates, peaks = [], []
            for _ in range(options.rounds(5, 1)):
                peaks.append(multiply_peak(name, options.threads))
                rates.append(rate_of())
            rate, peak = median(rates), median(peaks)
            rows.append((name, work, f"{rate / 1e9:.0f}", f"{peak / 1e9:.0f}", f"{rate / peak:.2f}x"))
            raw |= {f"{name} {work}": rates, f"{name} {work} peak": peaks}
            if name == JUDGED:
                checks.append(Check(f"{name}, {work}: share of the peak", rate / peak, TARGET, False, "x"))
    return Result(
        title=f"Multiply-accumulates per second, demo model, {DTYPE}, {options.threads} threads",
        columns=("instruction set", "work", "G/s", "peak", "share"),
        rows=rows,
        checks=checks,
        raw=raw,
    )


def linear_products(config: ModelConfig) -> int:
    """Of one token in all layers, without the output head."""
    hidden, heads = config.hidden_size, config.num_heads + 2 * config.num_kv_heads
    attention = hidden * config.head_dim * (heads + config.num_heads)
    return config.num_layers * (attention + 3 * hidden * config.intermediate_size)


def attention_products(config: ModelConfig, keys: float) -> float:
    """Of one token that sees so many keys."""
    return 2 * config.num_layers * config.num_heads * config.head_dim * keys


def prompt_products(assembled: Assembled, config: ModelConfig) -> float:
    """Per second."""
    requests = [greedy(str(i), ids, 1) for i, ids in enumerate(prompts(assembled.tokenizer, NUM_PROMPTS, PROMPT_LEN))]
    began = time.perf_counter()
    assembled.engine.run(requests, lambda _: None)
    seconds = time.perf_counter() - began
    of_token = linear_products(config) + attention_products(config, (PROMPT_LEN + 1) / 2)
    return NUM_PROMPTS * (PROMPT_LEN * of_token + config.vocab_size * config.hidden_size) / seconds


def decode_products(assembled: Assembled, config: ModelConfig, count: int) -> float:
    """Per second."""
    texts = prompts(assembled.tokenizer, count, PROMPT_LEN)
    total = Decoded()
    for part in decode_while_all_run(
        assembled.engine, [greedy(str(i), ids, NUM_TOKENS) for i, ids in enumerate(texts)]
    ):
        total = total.plus(part)
    head = config.vocab_size * config.hidden_size
    of_token = linear_products(config) + head + attention_products(config, PROMPT_LEN + NUM_TOKENS / 2)
    return of_token * total.throughput
