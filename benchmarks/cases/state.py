"""A model whose layers mostly have short convolutions, in the shape of LFM2-350M: steps in one native call against the
same pieces called one by one, what verifying costs, a prompt, and the convolutions' share of each.

The pieces run torch's convolution between native linear maps. Weights are random; the cost of a pass does not depend on
them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from benchmarks.lib.forwards import batch_of, engine_of
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.shapes import SHORT_CONVS
from benchmarks.lib.timing import alternate, medians, seconds_of, spread
from benchmarks.lib.workload import DTYPE
from specserve.batch.preceding import PrecedingTokens
from specserve.models.short_conv import ShortConv
from specserve.models.tiled import TiledPass
from specserve_cpu.fused import FusedPass
from specserve_cpu.kernels import CpuKernels
from specserve_cpu.short_conv import NativeShortConv

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.batch.batch import Batch
    from specserve.models.decoder import DecoderModel
    from specserve.protocols import AttentionBackend, ForwardPass

COUNTS, VERIFIED, CONTEXT, PROMPT = (1, 8, 32), 8, 500, 2000
STEP_TARGET, SHARE_TARGET = 1.35, 0.03


def run(options: Options) -> Result:
    engine = engine_of(SHORT_CONVS, options, max_num_batched_tokens=PROMPT, max_model_len=PROMPT + 100).engine
    attention, fused = engine.runner.attention, engine.runner.passes
    assert isinstance(fused, FusedPass), "the cpu plugin serves"
    model = fused.model
    pieces = TiledPass(model, attention, model.kernels.row_tile)
    batches = {f"{count} requests": batch_of(count, CONTEXT) for count in COUNTS}
    batches |= {f"{VERIFIED} rows of one": batch_of(1, CONTEXT, VERIFIED), "a prompt": batch_of(1, PROMPT, PROMPT)}
    variants: dict[str, Callable[[], float]] = {}
    for what, batch in batches.items():
        scored = batch.num_rows < PROMPT
        variants[f"fused, {what}"] = partial(seconds_of, partial(step, fused, attention, batch, scored))
        variants[f"pieces, {what}"] = partial(seconds_of, partial(step, pieces, attention, batch, scored))
        variants[f"convolutions, {what}"] = partial(seconds_of, convolutions(model, batch))
    with torch.inference_mode():
        samples = alternate(variants, options.rounds(9, 1))
    median = medians(samples)
    verified = median[f"fused, {VERIFIED} rows of one"] / median["fused, 1 requests"]
    return Result(
        title=f"LFM2-350M's shape, {DTYPE}, {options.threads} threads, context {CONTEXT}, a prompt of {PROMPT} tokens",
        columns=("rows", "fused, ms", "min..max s", "pieces / fused", "convolutions' share"),
        rows=[row(what, samples, median) for what in batches],
        checks=[
            Check(f"step that verifies {VERIFIED} rows / step of 1", verified, STEP_TARGET, True, "x"),
            Check("convolutions' share of a prompt", share(median, "a prompt"), SHARE_TARGET, True),
        ],
        notes=["Logits are of every row, but none of the prompt's. The share is that of the native calls alone."],
        raw=samples,
    )


def step(passes: ForwardPass, attention: AttentionBackend, batch: Batch, scored: bool) -> None:
    out = passes.layers(passes.embed(batch), batch, attention.plan(batch))
    if scored:
        passes.logits(out, batch)


def convolutions(model: DecoderModel, batch: Batch) -> Callable[[], None]:
    """Those of all layers, over random rows."""
    assert model.reach is not None, "it has convolutions"
    tokens = PrecedingTokens.of(batch, model.reach, model.device)
    rows = torch.randn(batch.num_rows, 3 * model.hidden_size).to(model.dtype)
    kernels, mixers = model.kernels, [model.layers[layer].mixer for layer in model.state_layers]
    assert isinstance(kernels, CpuKernels), "the cpu plugin serves"
    convs = [mixer for mixer in mixers if isinstance(mixer, ShortConv)]
    natives = [NativeShortConv(kernels.machine, conv, model.dtype) for conv in convs]

    def mix() -> None:
        for native, kept in zip(natives, model.token_states, strict=True):
            native.mix(rows, kept, tokens)

    return mix


def share(median: dict[str, float], what: str) -> float:
    return median[f"convolutions, {what}"] / median[f"fused, {what}"]


def row(what: str, samples: dict[str, list[float]], median: dict[str, float]) -> tuple[str, ...]:
    fused, pieces = median[f"fused, {what}"], median[f"pieces, {what}"]
    return (
        what,
        f"{fused * 1e3:.1f}",
        spread(samples[f"fused, {what}"]),
        f"{pieces / fused:.2f}x",
        f"{100 * share(median, what):.1f} %",
    )
