"""What clients that misbehave cost those that do not: the time between tokens of 8 decoding streams, alone and beside
256 idle connections, 64 slow readers and a flood beyond the queue.

Server, streams and the others are three processes. The slow readers' texts are generated before, so that no request but
the eight is in a step. Rounds alternate.
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
from benchmarks.lib.timing import spread
from benchmarks.lib.unfriendly_clients import FLOOD_PER_SECOND, NUM_IDLE, NUM_SLOW, NUM_WAITING
from benchmarks.lib.workload import DTYPE, SERVE_FLAGS, demo_engine, prompts
from specserve_bench.figures.distribution import percentile
from specserve_bench.served.server_process import server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.lib.http_clients import Body

TARGET = 1.2
NUM_STREAMS, PROMPT_LEN, NUM_TOKENS = 8, 100, 400
PERCENTS = (50, 99)


def run(options: Options) -> Result:
    tokenizer = demo_engine(options).tokenizer
    bodies = [completion_body(prompt, NUM_TOKENS, 0) for prompt in prompts(tokenizer, NUM_STREAMS, PROMPT_LEN)]
    flags = ("--threads", "1", "--max-num-seqs", str(NUM_STREAMS), "--max-waiting", str(NUM_WAITING), *SERVE_FLAGS)
    found: dict[str, list[list[float]]] = {"alone": [], "beside others": []}
    counts: list[dict[str, int]] = []
    with server(*flags) as started:
        intervals_of(started.url, bodies)
        for _ in range(options.rounds(5, 1)):
            found["alone"].append(intervals_of(started.url, bodies))
            with others(started.url, counts) as begin:
                found["beside others"].append(intervals_of(started.url, bodies, begin))
    ranked = {
        name: [[percentile(one, percent) for one in rounds] for percent in PERCENTS] for name, rounds in found.items()
    }
    p99 = {name: median(values[-1]) for name, values in ranked.items()}
    refused, reading = (min(count[key] for count in counts) for key in ("refused", "reading"))
    failed = sum(count["failed"] for count in counts)
    return Result(
        title=f"milliseconds between two tokens of {NUM_STREAMS} streams, {DTYPE}",
        columns=("how", "p50", "p99", "p99, min..max"),
        rows=[
            (name, *(f"{median(one) * 1e3:.1f}" for one in values), spread([one * 1e3 for one in values[-1]]))
            for name, values in ranked.items()
        ],
        checks=[
            Check("p99, beside others / alone", p99["beside others"] / p99["alone"], TARGET, True, "x"),
            Check("requests refused in a round", refused, 1, False),
            Check("requests of the flood that were answered otherwise", failed, 0, True),
            Check("slow readers that still read at the end of a round", reading, NUM_SLOW, False),
        ],
        notes=[
            f"The others: {NUM_IDLE} idle connections, {NUM_SLOW} slow readers, {FLOOD_PER_SECOND} requests a "
            f"second for a queue of {NUM_WAITING}. The server has one thread."
        ],
        raw={f"{name}, p99": values[-1] for name, values in ranked.items()},
    )


def intervals_of(url: str, bodies: Sequence[Body], begin: Sequence[subprocess.Popen[str]] = ()) -> list[float]:
    """Seconds between tokens; `begin`: the others, who start once all streams decode."""
    command = [sys.executable, "-m", "benchmarks.lib.stream_intervals", url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as clients:
        assert clients.stdin is not None
        assert clients.stdout is not None
        clients.stdin.write(json.dumps(bodies))
        clients.stdin.close()
        clients.stdout.readline()
        for process in begin:
            tell(process)
        answer = clients.stdout.read()
    if clients.returncode:
        raise ClientError(f"the streaming clients ended with exit code {clients.returncode}")
    intervals: list[float] = json.loads(answer)["intervals"]
    return intervals


@contextmanager
def others(url: str, counts: list[dict[str, int]]) -> Iterator[list[subprocess.Popen[str]]]:
    """The other clients, ready to begin; what they counted is added to `counts`."""
    command = [sys.executable, "-m", "benchmarks.lib.unfriendly_clients", url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise ClientError(f"the other clients ended with exit code {process.wait()}")
        yield [process]
        tell(process)
        counts.append(json.loads(process.stdout.readline()))


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
