"""What HTTP streaming costs: 32 clients of a server against the same 32 requests in the engine alone.

Server, clients and the engine alone are three processes, two of which sleep while the third works; rounds
alternate. Tokens per second from the first request sent to the last token.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

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

TARGET = 15.0
"""Per cent."""


def run(options: Options) -> Result:
    assembled = demo_engine(options)
    requests = [
        greedy(f"request-{i}", prompt, NUM_TOKENS)
        for i, prompt in enumerate(prompts(assembled.tokenizer, MANY, PROMPT_LEN))
    ]
    bodies = json.dumps([body_of(request) for request in requests])
    with server("--threads", str(options.threads), *SERVE_FLAGS) as started:
        contenders = {
            "engine alone": lambda: rate_in_a_thread(assembled.engine, requests),
            "HTTP streams": lambda: rate_of_clients(started.url, bodies),
        }
        taken = alternate(contenders, options.rounds(5, 1), warmup=0 if options.quick else 1)
    middle = medians(taken)
    alone, streamed = middle.values()
    cost = (1 - streamed / alone) * 100
    return Result(
        title=f"{MANY} requests at once, {PROMPT_LEN} prompt tokens, {NUM_TOKENS} new ones each, {DTYPE}",
        columns=("how", "tokens/s", "lowest..highest"),
        rows=[(name, f"{rate:.0f}", spread(taken[name])) for name, rate in middle.items()],
        checks=[Check("HTTP costs", cost, TARGET, True, " %")],
        notes=[f"{options.threads} threads; clients share the cores with the server."],
        raw=taken,
    )


def rate_in_a_thread(engine: Engine, requests: list[GenerateRequest]) -> float:
    """The server steps in a thread of its own, where malloc behaves unlike in the main one; so does its rival."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(serve_all, engine, requests).result().rate


def body_of(request: GenerateRequest) -> dict[str, Any]:
    return {
        "prompt": list(request.prompt_token_ids),
        "max_tokens": request.params.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def rate_of_clients(url: str, bodies: str) -> float:
    clients = subprocess.run(
        [sys.executable, "-m", "benchmarks.lib.http_clients", url],
        input=bodies,
        capture_output=True,
        text=True,
        check=False,
    )
    if clients.returncode:
        raise RuntimeError(f"the clients failed:\n{clients.stderr}")
    answer = json.loads(clients.stdout)
    assert answer["num_tokens"] == MANY * NUM_TOKENS, answer
    rate: float = answer["num_tokens"] / answer["seconds"]
    return rate
