"""Time between tokens of a few streams while a client floods /v1/chat/completions with prompts of 100 kB.

Once with the engine in the server's process, once with it in a process of its own, each with the flood and without.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.lib.http_clients import ClientError, completion_body
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.workload import DTYPE, PROMPT_LEN, SERVE_FLAGS, demo_engine, prompts
from specserve_bench.figures.distribution import percentile
from specserve_bench.served.server_process import server

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAMS, TOKENS = 4, 400
TARGET = 1.1
FORMS = {"one process": "--no-engine-process", "engine process": "--engine-process"}


def run(options: Options) -> Result:
    tokenizer = demo_engine(options).tokenizer
    bodies = [completion_body(prompt, TOKENS, 0) for prompt in prompts(tokenizer, STREAMS, PROMPT_LEN)]
    raw: dict[str, list[float]] = {f"{form}, {flood}": [] for form in FORMS for flood in ("alone", "flooded")}
    answered: dict[str, int] = dict.fromkeys(FORMS, 0)
    flags = ("--threads", str(options.threads), *SERVE_FLAGS)
    with server(*flags, FORMS["one process"]) as one, server(*flags, FORMS["engine process"]) as two:
        urls = dict(zip(FORMS, (one.url, two.url), strict=True))
        for _ in range(options.rounds(5, 1)):
            for form, url in urls.items():
                raw[f"{form}, alone"] += intervals(url, bodies)
                with flooded(url) as counts:
                    raw[f"{form}, flooded"] += intervals(url, bodies)
                answered[form] += sum(counts)
    p99 = {name: percentile(values, 99) for name, values in raw.items()}
    return Result(
        title=f"{STREAMS} streams, {PROMPT_LEN} prompt tokens, {DTYPE}: milliseconds between tokens",
        columns=("how", "median", "p99", "largest"),
        rows=[
            (name, f"{median(values) * 1e3:.2f}", f"{p99[name] * 1e3:.2f}", f"{max(values) * 1e3:.1f}")
            for name, values in raw.items()
        ],
        checks=[
            Check(f"p99 flooded, of alone, {form}", p99[f"{form}, flooded"] / p99[f"{form}, alone"], TARGET, True, "")
            for form in FORMS
        ],
        notes=[f"{options.threads} threads; prompts of the flood answered: {answered}."],
        raw=raw,
    )


def intervals(url: str, bodies: list[dict[str, object]]) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.lib.stream_intervals", url]
    done = subprocess.run(command, input=json.dumps(bodies), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClientError(f"the clients failed:\n{done.stderr.strip()}")
    found: list[float] = json.loads(done.stdout.splitlines()[-1])["intervals"]
    return found


@contextmanager
def flooded(url: str) -> Iterator[list[int]]:
    """Yields a list that has the number of answered prompts when the block has ended."""
    counts: list[int] = []
    command = [sys.executable, "-m", "benchmarks.lib.long_prompts", url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdout.readline()
        yield counts
        client.stdin.write("\n")
        client.stdin.flush()
        counts.append(json.loads(client.stdout.readline())["answered"])
