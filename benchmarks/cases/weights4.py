"""GGUF files as they are: specserve against llama.cpp on the same file, what a step that verifies drafts costs, and
what rounding the inputs of weights does to the loss on held-out text. Beside them OpenVINO, with 4-bit weights that it
makes of the models that the files were made of.

Both engines get the same prompts by tokens, greedy, and the same threads. llama.cpp is its own server, asked over HTTP;
`--llama-server` names a program that was built on this machine, which knows its instructions.
"""

from __future__ import annotations

import argparse
import math
import sys
from contextlib import ExitStack
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.cases.kernels import plain_read
from benchmarks.cases.peers import measure_row
from benchmarks.cases.weights import LOSS_TARGET, WINDOW, loss
from benchmarks.lib.forwards import batch_of, median_seconds, write_cache
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.timing import alternate, medians, spread
from benchmarks.lib.workload import DTYPE, demo_engine, held_out_prompts, prompts
from benchmarks.peers.engine_process import EngineProcess
from benchmarks.peers.engines import SPECSERVE, Settings, exported, program, specserve_environment
from benchmarks.peers.exports import clean_environment, openvino_export
from benchmarks.peers.make_peers import PEERS
from benchmarks.peers.workloads import EDITS, Row, Workload, job_of
from specserve.models.locate import locate_model
from specserve.text.tokenizer import HfTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.cases.kernels import Variants
    from benchmarks.cases.peers import Measured
    from benchmarks.peers.engines import Engine
    from benchmarks.peers.workers.wire import EngineSetup

LLAMACPP, OPENVINO = "llamacpp", "openvino"
ENGINES = (SPECSERVE, LLAMACPP, OPENVINO)
PROMPT_LEN, LONG_PROMPT, NUM_TOKENS, MAX_LEN = 64, 2000, 64, 2100
VERIFIED, CONTEXT = 8, 256
VERIFY_TARGET, READ_TARGET = 1.3, 0.75


class Cell(NamedTuple):
    """What is asked, and the least ratio to llama.cpp's throughput."""

    workload: Workload
    requests: int
    prompt_len: int
    num_tokens: int
    target: float

    @property
    def mode(self) -> str:
        return self.workload.mode


DECODE, PROMPT = Workload("decode", "plain"), Workload("prompt of 2,000", "plain")
EDITED = Workload("edits", "ngram", text=EDITS)
CELLS = (
    Cell(DECODE, 1, PROMPT_LEN, NUM_TOKENS, 1.1),
    Cell(DECODE, 8, PROMPT_LEN, NUM_TOKENS, 2.0),
    Cell(DECODE, 32, PROMPT_LEN, NUM_TOKENS, 3.0),
    Cell(PROMPT, 1, LONG_PROMPT, 1, 1.0),
    Cell(EDITED, 1, 600, 200, 2.0),
)


def run(options: Options) -> Result:
    parser = argparse.ArgumentParser(prog="python -m benchmarks weights4")
    parser.add_argument("--files", nargs="+", type=Path, required=True, help="GGUF files")
    parser.add_argument(
        "--llama-server", type=Path, help="else that of `python -m benchmarks.peers.make_peers llamacpp`"
    )
    parser.add_argument("--sources", nargs="+", default=[], help="for OpenVINO: the model of each file, in that order")
    parser.add_argument("--cells", nargs="*", type=int, default=range(len(CELLS)), help="by number; all of them")
    parser.add_argument("--rounds", type=int)
    chosen = parser.parse_args(options.rest)
    rounds = chosen.rounds or options.rounds(3, 1)
    cells = [CELLS[number] for number in chosen.cells]
    rows: list[tuple[str, ...]] = []
    checks: list[Check] = []
    raw: dict[str, list[float]] = {}
    for file, source in zip_longest(chosen.files, chosen.sources):
        for cell, one in measure(file, source, cells, rounds, options.threads, chosen.llama_server):
            ratio, name = one.ratio(LLAMACPP), f"{file.stem}, {cell.workload.name}, {cell.requests}"
            rates = [known(one.throughput(engine) * per_token(cell), ".1f") for engine in ENGINES]
            range_of_ours = spread([rate * per_token(cell) for rate in one.samples[SPECSERVE]])
            ratios = [known(one.ratio(engine), ".2f", "x") for engine in ENGINES[1:]]
            rows.append((name, rates[0], range_of_ours, *rates[1:], *ratios))
            checks.append(Check(f"{name}, specserve / llama.cpp", ratio, cell.target, False, "x"))
            raw |= {f"{name}, {engine}": samples for engine, samples in one.samples.items()}
        steps = step_seconds(file, options, rounds)
        verify, share = steps["verify"] / steps["one"], steps["read"] / steps["one"]
        rows.append((f"{file.stem}, step of {VERIFIED} rows / of one", f"{verify:.2f}x", *"-----"))
        rows.append((f"{file.stem}, step of one: share of a plain read's speed", f"{share:.2f}x", *"-----"))
        checks.append(Check(f"{file.stem}, a step that verifies {VERIFIED} rows", verify, VERIFY_TARGET, True, "x"))
        checks.append(Check(f"{file.stem}, a step of one row, of a plain read's speed", share, READ_TARGET, False, "x"))
        ratio = loss_ratio(file, options)
        rows.append((f"{file.stem}, loss with inputs of 8 bits / of float32", f"{ratio:.4f}x", *"-----"))
        checks.append(Check(f"{file.stem}, loss with inputs of 8 bits", ratio, LOSS_TARGET, True, "x"))
    return Result(
        title=f"GGUF files, {options.threads} threads; tokens/s, of prompts those read",
        columns=("file, work, requests", SPECSERVE, "min..max", LLAMACPP, OPENVINO, f"/ {LLAMACPP}", f"/ {OPENVINO}"),
        rows=rows,
        checks=checks,
        notes=[
            f"decode: {PROMPT_LEN} prompt and {NUM_TOKENS} output tokens; a prompt is timed with its first token.",
            "edits: specserve drafts by n-grams, llama.cpp by `--spec-type ngram-simple`, OpenVINO by prompt lookup.",
        ],
        raw=raw,
    )


def known(value: float, form: str, unit: str = "") -> str:
    """- where it is not a number: of an engine that was not asked, or crashed."""
    return "-" if math.isnan(value) else f"{value:{form}}{unit}"


def per_token(cell: Cell) -> float:
    """From output tokens to those that the cell is about."""
    return cell.prompt_len if cell.workload is PROMPT else 1.0


def measure(
    file: Path, source: str | None, cells: list[Cell], rounds: int, threads: int, server: Path | None
) -> Iterator[tuple[Cell, Measured]]:
    tokenizer = HfTokenizer.from_dir(locate_model(str(file)))
    for mode in dict.fromkeys(cell.mode for cell in cells):
        with ExitStack() as stack:
            engines = make_engines(file, mode, threads, server)
            if source:
                engines[OPENVINO] = exported(OPENVINO, mode, Settings(source, threads, "int4"), openvino_export)
            for engine in engines.values():
                stack.callback(engine.close)
            for cell in cells:
                if cell.mode == mode:
                    yield cell, measure_row(row_of(cell, rounds + 1, tokenizer), engines, rounds)


def make_engines(file: Path, mode: str, threads: int, server: Path | None) -> dict[str, Engine]:
    setup: EngineSetup = {
        "model": str(file.resolve()), "drafts": mode, "eagle": {}, "threads": threads, "max_len": MAX_LEN,
        "max_seqs": 32 if mode == "plain" else 1, "weights": "auto", "activations": "auto",
    }  # fmt: skip
    ours = program(SPECSERVE, mode, sys.executable, specserve_environment())
    own = {} if server is None else {"LLAMA_SERVER": str(server.resolve())}
    python = sys.executable if server else str(PEERS / LLAMACPP / "bin" / "python")
    theirs = program(LLAMACPP, mode, python, {**clean_environment(), **own})
    return {SPECSERVE: EngineProcess(ours, setup), LLAMACPP: EngineProcess(theirs, setup)}


def row_of(cell: Cell, num_jobs: int, tokenizer: HfTokenizer) -> Row:
    """With other prompts in every job."""
    windows = prompts(tokenizer, cell.requests * num_jobs, cell.prompt_len)
    jobs = []
    for number in range(num_jobs):
        job = job_of(cell.workload, windows[number * cell.requests : (number + 1) * cell.requests], tokenizer)
        jobs.append({**job, "num_tokens": cell.num_tokens})
    return Row(cell.workload, cell.requests, jobs)  # type: ignore[arg-type]


def step_seconds(file: Path, options: Options, rounds: int) -> dict[str, float]:
    """Of a step of one row, of one that verifies VERIFIED rows of one request, and of reading the file's bytes from
    memory: a step reads all weights, and the embedding where it is the output head, too."""
    assembled = demo_engine(options, model=str(file), kv_memory="256M", dtype=DTYPE)
    write_cache(assembled)
    runner = assembled.engine.runner
    steps: Variants = {
        name: partial(median_seconds, partial(runner.forward, batch_of(1, CONTEXT, rows)))
        for name, rows in (("one", 1), ("verify", VERIFIED))
    }
    return medians(alternate({**steps, "read": plain_read(file.stat().st_size, options)}, 3 * rounds))


def loss_ratio(file: Path, options: Options) -> float:
    """The loss on held-out text with inputs rounded to 8 bits, by that with inputs as they are, both in float32. Of
    random weights it says little."""
    losses = []
    for activations in ("auto", "float"):
        table = {"cpu": {"activations": activations}}
        engine = demo_engine(options, model=str(file), kv_memory="256M", dtype="float32", plugin_options=table)
        losses.append(loss(engine, held_out_prompts(engine.tokenizer, options.rounds(6, 2), WINDOW)))
    return losses[0] / losses[1]
