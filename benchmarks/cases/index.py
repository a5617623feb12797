"""What the n-gram index costs: per inserted token, per request and step, per byte, and as it grows.

No model: sources of the installed packages are the text, half of each file a prompt and half an output. Before
anything is timed, the shared index holds `size` tokens in all of its generations. Then requests of files that it
has not seen go on by one true token per step, and get a draft of at most 16 nodes each time.
"""

from __future__ import annotations

import sysconfig
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.lib.report import Check, Options, Result
from specserve.models.locate import locate_model
from specserve.text.tokenizer import HfTokenizer
from specserve_ngram._native import Index

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
MILLION, BATCH, LIMIT, PROMPT = 1_000_000, 256, 16, 200
GENERATIONS, STEPS = 4, 40
TAKEN, NONE = 16, array("i", [0])
"""Output goes in by so many tokens per call, without a draft."""
STEP_US, TOKEN_US, BYTES, BATCH_MS, GROWTH = 5.0, 2.0, 80.0, 1.0, 3.0


class Cost(NamedTuple):
    insert_us: float
    """Per token of prompt and output, learning included."""
    bytes_per_token: float
    generations: int
    alone_us: float
    """Per step of one request, which takes one token and gets one draft."""
    batch_us: float
    """The same per request in a batch of 256."""
    batch_ms: float
    worst_ms: float
    """The slowest call with the batch."""


def run(options: Options) -> Result:
    sizes = SIZES[:3] if options.quick else SIZES
    fresh, files = read_files(max(sizes))
    costs = {size: measure(size, files, fresh, options.rounds(3, 1)) for size in sizes}
    rows = [
        (f"{size:,}", f"{c.insert_us:.2f}", f"{c.bytes_per_token:.0f}", str(c.generations), f"{c.alone_us:.2f}",
         f"{c.batch_us:.2f}", f"{c.batch_ms:.2f}", f"{c.worst_ms:.2f}")
        for size, c in costs.items()
    ]  # fmt: skip
    first, last, million = costs[sizes[0]], costs[sizes[-1]], costs[MILLION]
    return Result(
        title=f"n-gram index, {GENERATIONS} generations, drafts of at most {LIMIT} nodes",
        columns=(
            "tokens",
            "us/insert",
            "bytes/token",
            "generations",
            "us/step",
            f"us/step of {BATCH}",
            "ms/call",
            "worst",
        ),
        rows=rows,
        checks=[
            Check("a million tokens: us per request and step", million.alone_us, STEP_US, True),
            Check("a million tokens: us per inserted token", million.insert_us, TOKEN_US, True),
            Check("a million tokens: bytes per token", million.bytes_per_token, BYTES, True),
            Check(f"a million tokens: ms per call of {BATCH}", million.batch_ms, BATCH_MS, True),
            Check(f"us/step at {sizes[-1]:,} / at {sizes[0]:,}", last.alone_us / first.alone_us, GROWTH, True, "x"),
            Check(f"ms/call at {sizes[-1]:,} / at {sizes[0]:,}", last.batch_ms / first.batch_ms, GROWTH, True, "x"),
        ],
        raw={f"{size}": list(map(float, c)) for size, c in costs.items()},
    )


def read_files(num_tokens: int) -> tuple[list[array[int]], list[array[int]]]:
    """Files of installed packages as tokens: long ones that play requests, and others of `num_tokens` together."""
    tokenizer = HfTokenizer.from_dir(locate_model("demo"))
    paths = (path for kind in ("stdlib", "purelib") for path in sorted(Path(sysconfig.get_path(kind)).rglob("*.py")))
    requests: list[array[int]] = []
    others: list[array[int]] = []
    total = 0
    for path in paths:
        ids = array("i", tokenizer.encode(path.read_text(encoding="utf-8", errors="ignore")[:60_000]))
        if len(ids) > 2000 and len(requests) < BATCH:
            requests.append(ids)
            continue
        others.append(ids)
        total += len(ids)
        if total > num_tokens and len(requests) == BATCH:
            return requests, others
    raise ValueError(f"the packages installed here have only {total} tokens; {num_tokens} are needed.")


def measure(size: int, files: list[array[int]], fresh: list[array[int]], rounds: int) -> Cost:
    index, insert_us = filled(size, files)
    stats = index.stats()
    alone, batch = [], []
    for turn in range(rounds):
        alone += list(step_seconds(index, fresh[turn : turn + 1], 20 * STEPS))
        batch += list(step_seconds(index, fresh, STEPS))
    mean = sum(batch) / len(batch)
    return Cost(
        insert_us,
        stats["bytes"] / stats["tokens"],
        stats["generations"],
        sum(alone) / len(alone) * 1e6,
        mean / BATCH * 1e6,
        mean * 1e3,
        max(batch) * 1e3,
    )


def filled(size: int, files: list[array[int]]) -> tuple[Index, float]:
    """An index of `size` tokens in all its generations, and microseconds per token that went in."""
    index = Index(
        match_type="learned", capacity=size + size // 10 + 100_000, generations=GENERATIONS, shared=True, min_match=1,
        max_match=1024, min_breadth=1, max_breadth=10, max_depth=64, min_survival=0.05,
    )  # fmt: skip
    total, began = 0, time.perf_counter()
    for file in files:
        text = file[: size - total]
        handle, begin = index.start("", text[: len(text) // 2]), len(text) // 2
        for at in range(begin, len(text), TAKEN):
            index.step(array("q", [handle]), text[at : at + TAKEN], array("i", [len(text[at : at + TAKEN])]), NONE)
        index.stop(handle, array("i"))
        total += len(text)
        if total >= size:
            break
    return index, (time.perf_counter() - began) / total * 1e6


def step_seconds(index: Any, files: list[array[int]], steps: int) -> Iterator[float]:
    """Seconds of each call; the first two are left out."""
    handles = array("q", [index.start("", file[:PROMPT]) for file in files])
    limits, counts = array("i", [LIMIT] * len(files)), array("i", [1] * len(files))
    for step in range(steps):
        tokens = array("i", [file[(PROMPT + step) % len(file)] for file in files])
        began = time.perf_counter()
        index.step(handles, tokens, counts, limits)
        if step >= 2:
            yield time.perf_counter() - began
    for handle in handles:
        index.stop(handle, array("i"))
