"""What the n-gram index costs: per inserted token, per request and step, in bytes per token, and as it grows.

No model runs. Sources of the installed packages are the text, half of each file a prompt and half an output. Before
anything is timed, the shared index holds `size` tokens in all of its generations. Then requests on other files go on
by one token per step, and get a draft of at most 16 nodes each time.
"""

from __future__ import annotations

import sysconfig
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.lib.report import Check, Options, Result
from specserve.models.locate import locate_model
from specserve.text.tokenizer import HfTokenizer
from specserve_ngram._native import Index

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
MILLION, BATCH, MAX_DRAFT_NODES, PROMPT_LEN = 1_000_000, 256, 16, 200
GENERATIONS, STEPS = 4, 40
CHUNK, NO_DRAFT = 16, array("i", [0])
"""Output is inserted in chunks of `CHUNK` tokens per call, without a draft."""
STEP_US, TOKEN_US, BYTES, BATCH_MS, GROWTH = 5.0, 2.0, 80.0, 1.0, 3.0
"""The targets."""


class Cost(NamedTuple):
    insert_us: float
    """Per token of prompt and output, learning included."""
    bytes_per_token: float
    generations: int
    single_us: float
    """Per step of a single request: one token in, one draft out."""
    batch_us: float
    """The same per request in a batch of BATCH."""
    batch_ms: float
    """Per call with the batch."""
    max_batch_ms: float


def run(options: Options) -> Result:
    sizes = SIZES[:3] if options.quick else SIZES
    fresh, files = read_files(max(sizes))
    costs = {size: measure(size, files, fresh, options.rounds(3, 1)) for size in sizes}
    rows = [
        (f"{size:,}", f"{c.insert_us:.2f}", f"{c.bytes_per_token:.0f}", str(c.generations), f"{c.single_us:.2f}",
         f"{c.batch_us:.2f}", f"{c.batch_ms:.2f}", f"{c.max_batch_ms:.2f}")
        for size, c in costs.items()
    ]  # fmt: skip
    return Result(
        title=f"n-gram index, {GENERATIONS} generations, drafts of at most {MAX_DRAFT_NODES} nodes",
        columns=(
            "tokens", "us/insert", "bytes/token", "generations", "us/step", f"us/step of {BATCH}", "ms/call", "max",
        ),
        rows=rows,
        checks=checks(costs),
        raw={f"{size}": list(map(float, c)) for size, c in costs.items()},
    )  # fmt: skip


def checks(costs: dict[int, Cost]) -> list[Check]:
    (small, first), *_, (large, last) = costs.items()
    million = costs[MILLION]
    return [
        Check("a million tokens: us per request and step", million.single_us, STEP_US, True),
        Check("a million tokens: us per inserted token", million.insert_us, TOKEN_US, True),
        Check("a million tokens: bytes per token", million.bytes_per_token, BYTES, True),
        Check(f"a million tokens: ms per call of {BATCH}", million.batch_ms, BATCH_MS, True),
        Check(f"us/step at {large:,} / at {small:,}", last.single_us / first.single_us, GROWTH, True, "x"),
        Check(f"ms/call at {large:,} / at {small:,}", last.batch_ms / first.batch_ms, GROWTH, True, "x"),
    ]


def read_files(num_tokens: int) -> tuple[list[array[int]], list[array[int]]]:
    """Files of installed packages as tokens: BATCH long ones for requests, and others with `num_tokens` in total."""
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
    index, insert_us = filled_index(size, files)
    stats = index.stats()
    single, batch = [], []
    for n in range(rounds):
        single += list(step_seconds(index, fresh[n : n + 1], 20 * STEPS))
        batch += list(step_seconds(index, fresh, STEPS))
    mean = sum(batch) / len(batch)
    return Cost(
        insert_us,
        stats["bytes"] / stats["tokens"],
        stats["generations"],
        sum(single) / len(single) * 1e6,
        mean / BATCH * 1e6,
        mean * 1e3,
        max(batch) * 1e3,
    )


def filled_index(size: int, files: list[array[int]]) -> tuple[Index, float]:
    """An index of `size` tokens in all its generations, and microseconds per inserted token."""
    index = Index(
        match_type="learned", capacity=size + size // 10 + 100_000, generations=GENERATIONS, shared=True, min_match=1,
        max_match=1024, min_breadth=1, max_breadth=10, max_depth=64, min_survival=0.05,
    )  # fmt: skip
    total, began = 0, time.perf_counter()
    for file in files:
        text = file[: size - total]
        handle, begin = index.start("", text[: len(text) // 2]), len(text) // 2
        for at in range(begin, len(text), CHUNK):
            index.step(array("q", [handle]), text[at : at + CHUNK], array("i", [len(text[at : at + CHUNK])]), NO_DRAFT)
        index.stop(handle, array("i"))
        total += len(text)
        if total >= size:
            break
    return index, (time.perf_counter() - began) / total * 1e6


def step_seconds(index: Index, files: list[array[int]], steps: int) -> Iterator[float]:
    """Seconds of each call except the first two."""
    handles = array("q", [index.start("", file[:PROMPT_LEN]) for file in files])
    limits, counts = array("i", [MAX_DRAFT_NODES] * len(files)), array("i", [1] * len(files))
    for step in range(steps):
        tokens = array("i", [file[(PROMPT_LEN + step) % len(file)] for file in files])
        began = time.perf_counter()
        index.step(handles, tokens, counts, limits)
        if step >= 2:
            yield time.perf_counter() - began
    for handle in handles:
        index.stop(handle, array("i"))
