"""Structured output: what masks cost, and what drafts of forced text gain.

Every request writes eight records with fixed keys, after a prompt of the usual length. Four engines decode in turns:
without a grammar; under the schema, a token at a time; with drafts of forced text; and with n-gram drafts beside
them. Only steps in which all requests run are timed.
"""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from benchmarks.lib.alternating import sums_in_turns
from benchmarks.lib.decoding import decode_while_all_run
from benchmarks.lib.records import COUNTS, NUM_TOKENS, SCHEMA, TEMPERATURES
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.workload import DTYPE, PROMPT_LEN, demo_engine, prompts, seeded
from specserve.types import StructuredOutput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.lib.decoding import Decoded
    from specserve.engine.engine import Engine
    from specserve.types import GenerateRequest

MASKS_TARGET, DRAFTS_TARGET, STEPS_TARGET = 0.95, 1.4, 0.6
FORM = StructuredOutput(kind="json_schema", text=json.dumps(SCHEMA))
FREE, MASKED, FORCED, BESIDE = "no grammar", "masks", "forced drafts", "forced and n-gram drafts"


def run(options: Options) -> Result:
    unforced = {"grammar": {"forced_drafts": "false"}}
    free = demo_engine(options)
    engines = {
        FREE: free.engine,
        MASKED: demo_engine(options, plugins=("grammar",), plugin_options=unforced).engine,
        FORCED: demo_engine(options, plugins=("grammar",)).engine,
        BESIDE: demo_engine(options, plugins=("grammar", "ngram")).engine,
    }
    rounds = options.rounds(5, 1) + 1
    windows = iter(prompts(free.tokenizer, len(TEMPERATURES) * rounds * sum(COUNTS), PROMPT_LEN))
    rows: list[tuple[str, ...]] = []
    checks: list[Check] = []
    raw: dict[str, list[float]] = {}
    for temperature in TEMPERATURES:
        for count in COUNTS:
            label = f"{'greedy' if not temperature else f'sampled at {temperature}'}, {count} concurrent"
            measured = decode_rounds(engines, [requests(windows, count, temperature, n) for n in range(rounds)])
            row, of_row = compare(label, measured)
            rows.append(row)
            checks += of_row
            raw |= {f"{label} {name}": [one.throughput for one in each] for name, each in measured.items()}
    return Result(
        title=f"structured output, demo model, {DTYPE}, {options.threads} threads; tokens/s",
        columns=(
            "workload",
            FREE,
            MASKED,
            FORCED,
            BESIDE,
            "masks / none",
            "drafts / masks",
            "steps per token, of masks'",
        ),
        rows=rows,
        checks=checks,
        raw=raw,
    )


def requests(windows: Iterator[tuple[int, ...]], count: int, temperature: float, n: int) -> list[GenerateRequest]:
    return [seeded(f"g{n}.{i}", next(windows), temperature, 1000 * n + i, NUM_TOKENS) for i in range(count)]


def structured(request: GenerateRequest) -> GenerateRequest:
    params = msgspec.structs.replace(request.params, structured_output=FORM, ignore_eos=False)
    return msgspec.structs.replace(request, params=params)


def decode_rounds(engines: dict[str, Engine], rounds: list[list[GenerateRequest]]) -> dict[str, list[Decoded]]:
    """By engine; the first round warms up."""
    measured: dict[str, list[Decoded]] = {name: [] for name in engines}
    for round_requests in rounds:
        forms = {name: round_requests if name == FREE else [*map(structured, round_requests)] for name in engines}
        running = {name: decode_while_all_run(engine, forms[name]) for name, engine in engines.items()}
        for name, decoded in sums_in_turns(running).items():
            measured[name].append(decoded)
    return {name: values[1:] for name, values in measured.items()}


def compare(label: str, measured: dict[str, list[Decoded]]) -> tuple[tuple[str, ...], list[Check]]:
    speeds = {name: [one.throughput for one in each] for name, each in measured.items()}
    masks = median(b / a for a, b in zip(speeds[FREE], speeds[MASKED], strict=True))
    drafts = median(b / a for a, b in zip(speeds[MASKED], speeds[FORCED], strict=True))
    steps = median(1 / one.mean_acceptance_length for one in measured[FORCED])
    beside = median(1 / one.mean_acceptance_length for one in measured[BESIDE])
    row = (
        label,
        *(f"{median(each):.0f}" for each in speeds.values()),
        f"{masks:.3f}x",
        f"{drafts:.2f}x",
        f"{steps:.2f}, {beside:.2f}",
    )
    return row, [
        Check(f"{label}, masks / no grammar", masks, MASKS_TARGET, False, "x"),
        Check(f"{label}, forced drafts / masks", drafts, DRAFTS_TARGET, False, "x"),
        Check(f"{label}, steps per token", steps, STEPS_TARGET, True),
        Check(f"{label}, steps with n-gram drafts, too, of those", beside / steps, 1.0, True),
    ]
