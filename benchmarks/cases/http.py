"""What HTTP streaming costs: 32 clients of a server against the same 32 requests in the engine alone.

Once with the engine in the server's process, once with it in a process of its own. Servers, clients and the engine
alone are processes; servers and clients are idle while the engine alone runs, and the other way round. Rounds
alternate. Output throughput from the first request sent to the last token.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from benchmarks.lib.http_clients import completion_body, streaming_throughput
from benchmarks.lib.processes import server
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.timing import alternate, medians, spread
from benchmarks.lib.workload import (
    DTYPE,
    MANY,
    NUM_TOKENS,
    PROMPT_LEN,
    SERVE_FLAGS,
    demo_engine,
    greedy,
    prompts,
    serve_all,
)

if TYPE_CHECKING:
    from specserve.engine.engine import Engine
    from specserve.types import GenerateRequest

TARGET = 5.0
"""Per cent."""


def run(options: Options) -> Result:
    assembled = demo_engine(options)
    requests = [
        greedy(f"request-{i}", prompt, NUM_TOKENS)
        for i, prompt in enumerate(prompts(assembled.tokenizer, MANY, PROMPT_LEN))
    ]
    bodies = [completion_body(one.prompt_token_ids, NUM_TOKENS, 0) for one in requests]
    flags = ("--threads", str(options.threads), *SERVE_FLAGS)
    with server(*flags, "--no-engine-process") as one, server(*flags, "--engine-process") as two:
        variants = {
            "engine alone": lambda: throughput_in_a_thread(assembled.engine, requests),
            "HTTP streams, one process": lambda: streaming_throughput(one.url, bodies),
            "HTTP streams, engine process": lambda: streaming_throughput(two.url, bodies),
        }
        samples = alternate(variants, options.rounds(5, 1), warmup=0 if options.quick else 1)
    median = medians(samples)
    alone, in_one, in_two = median.values()
    return Result(
        title=f"{MANY} concurrent requests, {PROMPT_LEN} prompt tokens, {NUM_TOKENS} output tokens each, {DTYPE}",
        columns=("how", "tokens/s", "min..max"),
        rows=[(name, f"{rate:.0f}", spread(samples[name])) for name, rate in median.items()],
        checks=[
            Check("throughput lost to HTTP, one process", (1 - in_one / alone) * 100, TARGET, True, " %"),
            Check("throughput lost to HTTP, engine process", (1 - in_two / alone) * 100, TARGET, True, " %"),
        ],
        notes=[f"{options.threads} threads; clients share the cores with the server."],
        raw=samples,
    )


def throughput_in_a_thread(engine: Engine, requests: list[GenerateRequest]) -> float:
    """In a thread, as the server's steps are: malloc behaves differently outside of the main thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(serve_all, engine, requests).result().throughput
