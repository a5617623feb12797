"""What batch invariance (the bit rule) costs: prefill that keeps it against prefill that does not.

Always torch's kernels. The variants give up row tiles, query tiles of attention, or both (`lib.prefill`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from benchmarks.lib.prefill import CPU, LENGTH, CausalAttention, UntiledKernels, cache_for, prefill, spec_for
from benchmarks.lib.report import Options, Result
from benchmarks.lib.timing import alternate, medians, seconds_of, spread
from benchmarks.lib.workload import DTYPE, MODEL, prompts
from specserve.attention.sdpa import SdpaFactory
from specserve.kernels.torch_kernels import TorchKernels
from specserve.models.loader import load_model
from specserve.models.locate import locate_model
from specserve.models.runner import Runner, StepParts
from specserve.text.tokenizer import HfTokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.models.decoder import DecoderModel
    from specserve.protocols import AttentionBackend

CHUNK = 512


def run(options: Options) -> Result:
    torch.set_num_threads(options.threads)
    path = locate_model(MODEL)
    tokens = prompts(HfTokenizer.from_dir(path), 1, LENGTH)[0]
    tiled, untiled = (load_model(path, kernels=kernels, dtype=DTYPE) for kernels in (TorchKernels(), UntiledKernels()))
    spec, cache = spec_for(tiled), cache_for(tiled)
    query_tiles = SdpaFactory().build(spec, cache, CPU, tiled.dtype)
    causal = CausalAttention(spec, cache)
    whole = [LENGTH]
    variants: dict[str, tuple[DecoderModel, AttentionBackend, Sequence[int]]] = {
        "row tiles, attention in query tiles (the engine)": (tiled, query_tiles, whole),
        f"the same in chunks of {CHUNK}": (tiled, query_tiles, [CHUNK] * (LENGTH // CHUNK)),
        "row tiles, one causal attention call": (tiled, causal, whole),
        "all rows at once, attention in query tiles": (untiled, query_tiles, whole),
        "all rows at once, one causal attention call": (untiled, causal, whole),
    }
    samples = alternate(
        {
            name: partial(
                seconds_of, partial(prefill, Runner(StepParts(model, model.kernels, attention)), tokens, chunks)
            )
            for name, (model, attention, chunks) in variants.items()
        },
        options.rounds(7, 2),
    )
    median = medians(samples)
    untiled_seconds = median["all rows at once, one causal attention call"]
    rows = [
        (name, f"{LENGTH / t:.0f}", f"{t * 1e3:.0f}", spread(samples[name]), f"{t / untiled_seconds:.2f}x")
        for name, t in median.items()
    ]
    return Result(
        title=f"prefill of {LENGTH} tokens, {DTYPE}, {options.threads} threads",
        columns=("how", "tokens/s", "ms", "min..max s", "time / last"),
        rows=rows,
        raw=samples,
    )
