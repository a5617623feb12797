"""Models whose layers mostly have no attention, in the shapes of LFM2-350M (short convolutions) and Qwen3.5-0.8B (gated
delta nets): steps in as few native calls as there are against the same pieces called one by one, what verifying and
rejected drafts cost, what accepted ones bring, a prompt, the mixers' share of each; and other engines beside it.

Weights are random; the cost of a pass does not depend on them.
"""

from __future__ import annotations

import argparse
import operator
import statistics
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from benchmarks.lib import accepted_drafts
from benchmarks.lib.forwards import engine_of, write_cache
from benchmarks.lib.mixers import mixing
from benchmarks.lib.recurrent_steps import Step
from benchmarks.lib.report import Check, Options, Result, aligned
from benchmarks.lib.shapes import ATTENTION, DELTA_NETS, SHORT_CONVS, model_directory
from benchmarks.lib.timing import alternate, balanced, medians, seconds_of, spread
from benchmarks.lib.workload import DTYPE
from benchmarks.peers import random_checkpoint
from specserve.models.decoder import DecoderModel
from specserve.models.tiled import TiledPass

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.batch.batch import Batch
    from specserve.protocols import AttentionBackend, ForwardPass

    Variants = dict[str, Callable[[], float]]

MODELS = {"lfm2": SHORT_CONVS, "qwen3_5": DELTA_NETS}
COUNTS, ROWS, CONTEXT, PROMPT = (8, 32), (1, 2, 4, 8), 500, 2000
PAIRS = 12
"""For each round: what rejected drafts cost is smaller than what a step takes more or less from time to time."""
VERIFIED = ROWS[-1]
A_STEP, VERIFY = "1 row", f"{VERIFIED} rows of one"
REJECTED, NEVER = "rejected drafts", "no drafts"
STEP_TARGET, REJECTED_TARGET, ACCEPTED_TARGET = 1.35, 0.02, 0.9
SHARE_TARGETS = {SHORT_CONVS: 0.03}


def run(options: Options) -> Result:
    parser = argparse.ArgumentParser(prog="python -m benchmarks state")
    parser.add_argument("--model", choices=MODELS, default="lfm2")
    parser.add_argument("--against", nargs="*", choices=random_checkpoint.AGAINST, default=[])
    parser.add_argument("--weights", choices=("auto", "int8"), default="auto", help="in the engines; auto: bfloat16")
    parser.add_argument("--llama-server", type=Path, help="a program that was built on this machine")
    parser.add_argument("--llama-sources", type=Path, help="the folder of convert_hf_to_gguf.py")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--skip-steps", action="store_true", help="other engines alone")
    chosen = parser.parse_args(options.rest)
    name, rounds = MODELS[chosen.model], chosen.rounds or options.rounds(9, 1)
    samples: dict[str, list[float]] = {}
    if not chosen.skip_steps:
        with torch.inference_mode():
            variants, pair = steps(name, options)
            samples = alternate(variants, rounds) | balanced(pair, PAIRS * rounds)
        samples |= alternate(drafts(name, options), rounds)
    asked = random_checkpoint.Asked(
        model_directory(name), tuple(chosen.against), chosen.weights, options.threads, chosen.llama_server,
        chosen.llama_sources,
    )  # fmt: skip
    peers = random_checkpoint.compare(asked, rounds) if chosen.against else None
    median = medians(samples)
    return Result(
        title=f"{chosen.model}, {DTYPE}, {options.threads} threads, context {CONTEXT}, a prompt of {PROMPT} tokens; "
        f"beside other engines with weights {chosen.weights}",
        columns=("step", "as served, ms", "min..max s", "pieces / served", "mixers' share"),
        rows=rows(samples, median) if samples else [],
        checks=[*(checks(name, samples) if samples else []), *(peers.checks if peers else [])],
        notes=[
            "Logits are of every row, but none of the prompt's. The share is that of the native calls alone.",
            f"A rejected draft: a step with {VERIFIED - 1} draft tokens and the step behind it, against the same rows "
            "as committed tokens, in turns forwards and backwards; the median of the differences.",
        ],
        raw=samples | (peers.raw if peers else {}),
        details="\n".join(aligned([random_checkpoint.COLUMNS, *peers.rows])) if peers else "",
    )


def steps(name: str, options: Options) -> tuple[Variants, Variants]:
    """Forward passes, as the engine makes them and in pieces; and two steps in a row, the first of which has drafts
    that are rejected, or as many committed tokens."""
    assembled = engine_of(
        name, options, max_num_batched_tokens=PROMPT, max_model_len=PROMPT + 100, max_num_seqs=COUNTS[-1],
        plugins=("ngram",),
    )  # fmt: skip
    write_cache(assembled)
    engine = assembled.engine
    attention, served, model = engine.runner.attention, engine.runner.passes, engine.runner.model
    assert isinstance(model, DecoderModel), "a family of the engine's own"
    pieces = TiledPass(model, attention, model.kernels.row_tile)
    batches = {A_STEP: Step().batch(CONTEXT)}
    batches |= {f"{rows} rows of one": Step(drafted=rows - 1).batch(CONTEXT) for rows in ROWS[1:]}
    batches |= {f"{count} requests": Step(count).batch(CONTEXT) for count in COUNTS}
    batches["a prompt"] = Step(known=PROMPT).batch(PROMPT)
    variants: Variants = {}
    for what, batch in batches.items():
        scored = batch.num_rows < PROMPT
        variants[f"served, {what}"] = partial(seconds_of, partial(step, served, attention, [batch], scored))
        variants[f"pieces, {what}"] = partial(seconds_of, partial(step, pieces, attention, [batch], scored))
        variants[f"mixers, {what}"] = partial(seconds_of, mixing(model, batch))
    behind = Step(turned=True).batch(CONTEXT + 1)
    pair: Variants = {}
    for what, first in {REJECTED: Step(drafted=VERIFIED - 1), NEVER: Step(known=VERIFIED)}.items():
        both = [first.batch(CONTEXT), behind]
        pair[what] = partial(seconds_of, partial(step, served, attention, both, scored=True))
    return variants, pair


def step(passes: ForwardPass, attention: AttentionBackend, batches: list[Batch], scored: bool) -> None:
    """One step after the other."""
    for batch in batches:
        out = passes.layers(passes.embed(batch), batch, attention.plan(batch))
        if scored:
            passes.logits(out, batch)


def drafts(name: str, options: Options) -> Variants:
    """Of the model, and of a dense one of its sizes."""
    return {
        f"{shape}, {what}": measure
        for shape in (name, ATTENTION[name])
        for what, measure in accepted_drafts.steps(shape, options, CONTEXT, VERIFIED - 1).items()
    }


def rows(samples: dict[str, list[float]], median: dict[str, float]) -> list[tuple[str, ...]]:
    served = [what.removeprefix("served, ") for what in samples if what.startswith("served, ")]
    table: list[tuple[str, ...]] = [
        (
            what,
            f"{median[f'served, {what}'] * 1e3:.1f}",
            spread(samples[f"served, {what}"]),
            f"{median[f'pieces, {what}'] / median[f'served, {what}']:.2f}x",
            f"{100 * share(median, what):.1f} %",
        )
        for what in served
    ]
    others = [what for what in samples if not what.startswith(("served, ", "pieces, ", "mixers, "))]
    return table + [(what, f"{median[what] * 1e3:.1f}", spread(samples[what]), "-", "-") for what in others]


def checks(name: str, samples: dict[str, list[float]]) -> list[Check]:
    median = medians(samples)
    one, dense = median[f"served, {A_STEP}"], ATTENTION[name]
    verified = median[f"served, {VERIFY}"] / one
    rejected = statistics.median(map(operator.sub, samples[REJECTED], samples[NEVER])) / one

    def speedups(what: str) -> list[float]:
        return [median[f"{shape}, plain"] / median[f"{shape}, {what}"] for shape in (name, dense)]

    def beside_dense(what: str, drafts: str) -> Check:
        own, other = speedups(what)
        of = f"speed-up by {drafts} ({own:.2f}x), of a dense model's ({other:.2f}x)"
        return Check(of, own / other, ACCEPTED_TARGET, False)

    found = [
        Check(f"step that verifies {VERIFIED} rows / step of 1", verified, STEP_TARGET, True, "x"),
        Check("what rejected drafts cost, of a step", rejected, REJECTED_TARGET, True),
        beside_dense("accepted", f"{VERIFIED - 1} accepted drafts"),
        beside_dense("edit", "drafts of an edit"),
    ]
    if name in SHARE_TARGETS:
        found.append(Check("mixers' share of a prompt", share(median, "a prompt"), SHARE_TARGETS[name], True))
    return found


def share(median: dict[str, float], what: str) -> float:
    return median[f"mixers, {what}"] / median[f"served, {what}"]
