"""What LoRA adapters cost: the same requests on the base model, under one adapter, and under eight at once.

The adapters are random, of rank 16 on every linear layer. Output tokens per second over whole runs, prefill included.
ngram: the speed-up of speculation on an edit with and without an adapter; an adapter changes the text, so each is
compared with its own plain decoding. PEFT: one request in transformers, adapter not merged.
"""

from __future__ import annotations

import tempfile
from functools import reduce
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from benchmarks.lib.decoding import Decoded, decode_in_slices
from benchmarks.lib.random_adapter import write_random_adapter
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.timing import alternate, medians, seconds_of
from benchmarks.lib.transformers_baseline import transformers_generate
from benchmarks.lib.workload import (
    DTYPE,
    PROMPT_LEN,
    demo_config,
    edit_prompt,
    greedy,
    prompts,
    seeded,
    serve_all,
)
from specserve.engine.assembly import Assembled, assemble
from specserve.plugins.host import PluginHost

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.types import GenerateRequest

RANK, MANY_ADAPTERS, NUM_TOKENS = 16, 8, 128
COUNTS = (8, 32)
ONE_ADAPTER_TARGET, MANY_ADAPTERS_TARGET, SPEEDUP_TARGET = 0.85, 0.75, 0.9


class Part(NamedTuple):
    """What one of the comparisons adds to the result."""

    rows: list[tuple[str, ...]]
    checks: list[Check]
    raw: dict[str, list[float]]


def run(options: Options) -> Result:
    with tempfile.TemporaryDirectory() as directory:
        names = [f"adapter-{i}" for i in range(MANY_ADAPTERS)]
        paths = {name: write_random_adapter(Path(directory) / name, RANK, i) for i, name in enumerate(names)}
        plain, ngram = AdapterEngine.start(options, paths), AdapterEngine.start(options, paths, "ngram")
        parts = [
            throughput(plain, options),
            speculation(plain, ngram, options),
            against_peft(plain, paths["adapter-0"], options),
        ]
    return Result(
        title=f"adapters of rank {RANK} on every linear layer, demo model, {DTYPE}, {options.threads} threads",
        columns=("case", "without, tokens/s", "with, tokens/s", "with / without"),
        rows=[row for part in parts for row in part.rows],
        checks=[check for part in parts for check in part.checks],
        notes=["Ratios are medians over rounds; the runs of a round follow each other."],
        raw={name: values for part in parts for name, values in part.raw.items()},
    )


class AdapterEngine(NamedTuple):
    """An engine with adapters, and the id of each."""

    assembled: Assembled
    ids: list[str]

    @classmethod
    def start(cls, options: Options, paths: dict[str, Path], *plugins: str) -> AdapterEngine:
        adapters = {name: str(path) for name, path in paths.items()}
        config = demo_config(
            options, plugins=("lora", *plugins), plugin_options={"lora": {"adapters": adapters}}
        )  # fmt: skip
        host = PluginHost.start(config)
        assembled = assemble(config, host)
        return cls(assembled, [host.collect("resolve_model", name=name)[0][1].adapter for name in paths])

    def throughput(self, requests: list[GenerateRequest], num_adapters: int) -> float:
        return serve_all(self.assembled.engine, self.with_adapters(requests, num_adapters)).throughput

    def with_adapters(self, requests: list[GenerateRequest], num_adapters: int) -> list[GenerateRequest]:
        """Requests get the first `num_adapters` adapters in turn; 0: all get the base model."""
        ids = self.ids[:num_adapters] or [""]
        return [msgspec.structs.replace(one, adapter=ids[i % len(ids)]) for i, one in enumerate(requests)]


def throughput(engine: AdapterEngine, options: Options) -> Part:
    part = Part([], [], {})
    for count in COUNTS:
        texts = prompts(engine.assembled.tokenizer, count, PROMPT_LEN)
        requests = [greedy(f"{i}", prompt, NUM_TOKENS) for i, prompt in enumerate(texts)]
        variants = {str(n): lambda n=n, some=requests: engine.throughput(some, n) for n in (0, 1, MANY_ADAPTERS)}
        samples = alternate(variants, options.rounds(5, 1))
        for n, target in ((1, ONE_ADAPTER_TARGET), (MANY_ADAPTERS, MANY_ADAPTERS_TARGET)):
            ratio = median(b / a for a, b in zip(samples["0"], samples[str(n)], strict=True))
            what = f"{count} requests, {'one adapter' if n == 1 else f'{n} adapters'}"
            part.rows.append((what, f"{median(samples['0']):.0f}", f"{median(samples[str(n)]):.0f}", f"{ratio:.3f}x"))
            part.checks.append(Check(f"{what} / base, tokens/s", ratio, target, False, "x"))
        part.raw.update({f"{count} requests, {n} adapters": values for n, values in samples.items()})
    return part


def speculation(plain: AdapterEngine, ngram: AdapterEngine, options: Options) -> Part:
    """The speed-up of ngram on an edit, with an adapter over without one."""
    tokenizer = plain.assembled.tokenizer
    rounds = options.rounds(3, 1)
    files = [edit_prompt(tokenizer, file) for file in prompts(tokenizer, rounds + 1, 500)]
    lengths: dict[str, list[float]] = {}

    def measure(name: str, engine: AdapterEngine, num_adapters: int) -> float:
        of_variant = lengths.setdefault(name, [])
        n = len(of_variant)
        requests = engine.with_adapters([seeded(f"{name} {n}", files[n], 0.0, n)], num_adapters)
        decoded = reduce(Decoded.plus, decode_in_slices(engine.assembled.engine, requests))
        of_variant.append(decoded.mean_acceptance_length)
        return decoded.throughput

    variants = {
        f"{who} {n}": lambda who=who, engine=engine, n=n: measure(f"{who} {n}", engine, n)
        for n in (0, 1)
        for who, engine in (("plain", plain), ("ngram", ngram))
    }
    samples = alternate(variants, rounds)
    rates = medians(samples)
    speedups = [rates[f"ngram {n}"] / rates[f"plain {n}"] for n in (0, 1)]
    mean_lengths = [sum(lengths[f"ngram {n}"]) / len(lengths[f"ngram {n}"]) for n in (0, 1)]
    rows: list[tuple[str, ...]] = [
        (f"ngram on an edit, {name}: plain, then ngram; acceptance length {mean_lengths[n]:.1f}",
         f"{rates[f'plain {n}']:.0f}", f"{rates[f'ngram {n}']:.0f}", f"{speedups[n]:.2f}x")
        for n, name in ((0, "base"), (1, "one adapter"))
    ]  # fmt: skip
    check = Check("ngram's speed-up with an adapter / without", speedups[1] / speedups[0], SPEEDUP_TARGET, False, "x")
    return Part(rows, [check], {f"edit, {name}": values for name, values in samples.items()})


def against_peft(engine: AdapterEngine, adapter: Path, options: Options) -> Part:
    """One request with the adapter, in transformers with PEFT and in specserve."""
    prompt = prompts(engine.assembled.tokenizer, 1, PROMPT_LEN)[0]
    generate = transformers_generate(prompt, adapter)
    one = [greedy("single", prompt, NUM_TOKENS)]
    variants: dict[str, Callable[[], float]] = {
        "transformers": lambda: NUM_TOKENS / seconds_of(lambda: generate(NUM_TOKENS)),
        "specserve": lambda: engine.throughput(one, 1),
    }
    samples = alternate(variants, options.rounds(3, 1))
    peft, specserve = medians(samples).values()
    row = (
        "1 request, one adapter: transformers with PEFT, then specserve", f"{peft:.0f}", f"{specserve:.0f}",
        f"{specserve / peft:.1f}x",
    )  # fmt: skip
    return Part([row], [], {f"peft, {name}": values for name, values in samples.items()})
