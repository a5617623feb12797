"""One random checkpoint in several engines: specserve, llama.cpp on what its converter made of it, transformers."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.cases.peers import measure_row
from benchmarks.cases.weights4 import (
    DECODE,
    LONG_PROMPT,
    MAX_LEN,
    NUM_TOKENS,
    PROMPT,
    PROMPT_LEN,
    Cell,
    known,
    per_token,
    row_of,
)
from benchmarks.lib.report import Check
from benchmarks.lib.timing import spread
from benchmarks.lib.workload import MANY
from benchmarks.peers.engine_process import EngineProcess
from benchmarks.peers.engines import SPECSERVE, program, specserve_environment
from benchmarks.peers.exports import clean_environment, gguf_export
from benchmarks.peers.make_peers import PEERS
from specserve.text.tokenizer import HfTokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.peers.engines import Engine
    from benchmarks.peers.workers.wire import EngineSetup

LLAMACPP, TRANSFORMERS = "llamacpp", "transformers"
AGAINST = (LLAMACPP, TRANSFORMERS)
CELLS = (
    Cell(PROMPT, 1, LONG_PROMPT, 1, 1.0),
    Cell(DECODE, 1, PROMPT_LEN, NUM_TOKENS, 1.0),
    Cell(DECODE, 8, PROMPT_LEN, NUM_TOKENS, 1.0),
    Cell(DECODE, MANY, PROMPT_LEN, NUM_TOKENS, 1.0),
)
"""transformers is asked for the prompt alone."""
COLUMNS = ("work, requests", SPECSERVE, "min..max", *AGAINST, *(f"/ {name}" for name in AGAINST))


class Asked(NamedTuple):
    """What is compared, and where the others are."""

    model: Path
    against: tuple[str, ...]
    weights: str
    """auto or int8."""
    threads: int
    llama_server: Path | None
    llama_sources: Path | None
    """None: what `make_peers llamacpp` installed."""


class Compared(NamedTuple):
    """rows: under COLUMNS; tokens per second, of the prompt those read."""

    rows: list[tuple[str, ...]]
    checks: list[Check]
    raw: dict[str, list[float]]


def compare(asked: Asked, rounds: int) -> Compared:
    compared = Compared([], [], {})
    tokenizer = HfTokenizer.from_dir(asked.model)
    with ExitStack() as stack:
        engines = make_engines(asked)
        for engine in engines.values():
            stack.callback(engine.close)
        for cell in CELLS:
            able = {name: engine for name, engine in engines.items() if name != TRANSFORMERS or cell.workload is PROMPT}
            one = measure_row(row_of(cell, rounds + 1, tokenizer), able, rounds)
            what, scale = f"{cell.workload.name}, {cell.requests}", per_token(cell)
            rates = [known(one.throughput(name) * scale, ".1f") for name in (SPECSERVE, *AGAINST)]
            range_of_ours = spread([rate * scale for rate in one.samples[SPECSERVE]])
            ratios = [known(one.ratio(name), ".2f", "x") for name in AGAINST]
            compared.rows.append((what, rates[0], range_of_ours, *rates[1:], *ratios))
            peers = [name for name in able if name != SPECSERVE]
            compared.checks.extend(
                Check(f"{what}, {SPECSERVE} / {name}", one.ratio(name), cell.target, False, "x") for name in peers
            )
            compared.raw.update({f"{what}, {name}": samples for name, samples in one.samples.items()})
    return compared


def make_engines(asked: Asked) -> dict[str, Engine]:
    setup: EngineSetup = {
        "model": str(asked.model), "drafts": "plain", "eagle": {}, "threads": asked.threads, "max_len": MAX_LEN,
        "max_seqs": MANY, "weights": asked.weights, "activations": asked.weights,
    }  # fmt: skip
    ours = specserve_environment()
    engines: dict[str, Engine] = {SPECSERVE: EngineProcess(program(SPECSERVE, "state", sys.executable, ours), setup)}
    if LLAMACPP in asked.against:
        file = gguf_export(str(asked.model), asked.weights, asked.llama_sources)
        own = {} if asked.llama_server is None else {"LLAMA_SERVER": str(asked.llama_server.resolve())}
        python = sys.executable if asked.llama_server else str(PEERS / LLAMACPP / "bin" / "python")
        theirs = program(LLAMACPP, "state", python, {**clean_environment(), **own})
        engines[LLAMACPP] = EngineProcess(theirs, {**setup, "model": str(file)})
    if TRANSFORMERS in asked.against:
        engines[TRANSFORMERS] = EngineProcess(program(TRANSFORMERS, "state", sys.executable, ours), setup)
    return engines
