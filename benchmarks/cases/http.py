"""What HTTP streaming costs: 32 clients of a server against the same 32 requests in the engine alone.

With the demo model, and with one of 135 M parameters where `make build/smollm2/config.json` has made it. Once with the
engine in the server's process, once with it in a process of its own, once with fewer events. Servers, clients and the
engine alone are processes; servers and clients are idle while the engine alone runs, and the other way round. Rounds
alternate. Output throughput from the first request sent to the last token.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.lib.http_clients import completion_body, streaming_throughput
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.timing import alternate, medians, spread
from benchmarks.lib.workload import (
    DTYPE,
    MANY,
    MODEL,
    NUM_TOKENS,
    PROMPT_LEN,
    SERVE_FLAGS,
    demo_engine,
    greedy,
    prompts,
    serve_all,
)
from specserve_bench.served.server_process import server

if TYPE_CHECKING:
    from specserve.engine.engine import Engine
    from specserve.types import GenerateRequest

TARGET = 5.0
"""Per cent."""
INTERVAL = 8
FEWER = f"one process, {INTERVAL} tokens an event"


class Load(NamedTuple):
    """32 requests of a model."""

    name: str
    model: str
    prompt_len: int
    num_tokens: int


DEMO = Load("demo", MODEL, PROMPT_LEN, NUM_TOKENS)
SMOLLM2 = Load("SmolLM2-135M", "build/smollm2", 100, 100)


def run(options: Options) -> Result:
    loads = [DEMO, *([SMOLLM2] if Path(SMOLLM2.model).exists() else [])]
    samples = {name: found for load in loads for name, found in measured(load, options).items()}
    median = medians(samples)
    return Result(
        title=f"{MANY} concurrent requests, {DTYPE}",
        columns=("how", "tokens/s", "min..max"),
        rows=[(name, f"{rate:.0f}", spread(samples[name])) for name, rate in median.items()],
        checks=[
            Check(
                f"throughput lost to HTTP, {load.name}, {form}",
                (1 - median[f"{load.name}: HTTP streams, {form}"] / median[f"{load.name}: engine alone"]) * 100,
                TARGET,
                True,
                " %",
            )
            for load in loads
            for form in ("one process", "engine process", FEWER)
        ],
        notes=[
            f"{options.threads} threads; clients share the cores with the server.",
            *(f"{load.name}: {load.prompt_len} prompt tokens, {load.num_tokens} output tokens each" for load in loads),
        ],
        raw=samples,
    )


def measured(load: Load, options: Options) -> dict[str, list[float]]:
    """Tokens per second by what was measured."""
    assembled = demo_engine(options, model=load.model)
    requests = [
        greedy(f"request-{i}", prompt, load.num_tokens)
        for i, prompt in enumerate(prompts(assembled.tokenizer, MANY, load.prompt_len))
    ]
    bodies = [completion_body(one.prompt_token_ids, load.num_tokens, 0) for one in requests]
    flags = (load.model, "--threads", str(options.threads), *SERVE_FLAGS)
    merged = ("--stream-interval", str(INTERVAL))
    with (
        server(*flags, "--no-engine-process") as one,
        server(*flags, "--engine-process") as two,
        server(*flags, "--no-engine-process", *merged) as fewer,
    ):
        variants = {
            f"{load.name}: engine alone": lambda: throughput_in_a_thread(assembled.engine, requests),
            f"{load.name}: HTTP streams, one process": lambda: streaming_throughput(one.url, bodies),
            f"{load.name}: HTTP streams, engine process": lambda: streaming_throughput(two.url, bodies),
            f"{load.name}: HTTP streams, {FEWER}": lambda: streaming_throughput(fewer.url, bodies),
        }
        return alternate(variants, options.rounds(5, 1), warmup=0 if options.quick else 1)


def throughput_in_a_thread(engine: Engine, requests: list[GenerateRequest]) -> float:
    """In a thread, as the server's steps are: malloc behaves differently outside of the main thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(serve_all, engine, requests).result().throughput
