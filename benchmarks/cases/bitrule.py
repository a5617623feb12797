"""What the bit rule costs: prefill whose rows have the bits of decode, against prefill free of that promise.

The product computes row-wise pieces in tiles of fixed height and attention row by row. The free variants run
the same weights with all rows at once, and attention as one causal call over the contiguous prompt.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from benchmarks.lib.report import Options, Result
from benchmarks.lib.timing import alternate, medians, seconds_of, spread
from benchmarks.lib.workload import DTYPE, MODEL, greedy, prompts
from specserve.attention.sdpa import SdpaFactory
from specserve.batch.batch import BatchBuilder
from specserve.batch.request import Request
from specserve.batch.span import Span
from specserve.engine.runner import Runner
from specserve.kernels.torch_kernels import TorchKernels
from specserve.kv.cache import KVCache
from specserve.models.loader import load_model
from specserve.models.locate import locate_model
from specserve.protocols import AttentionBackend, AttentionSpec
from specserve.text.tokenizer import HfTokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.models.decoder import DecoderModel

LENGTH, CHUNK, BLOCK_SIZE = 2048, 512, 16
CPU = torch.device("cpu")


class UntiledKernels(TorchKernels):
    name = "torch, untiled"
    row_tile = None


class CausalAttention(AttentionBackend):
    """One call per layer over a whole prompt that starts at position 0."""

    name = "causal"

    def __init__(self, spec: AttentionSpec, cache: KVCache) -> None:
        self.spec, self.cache = spec, cache

    def plan(self, batch: Batch) -> Batch:
        assert len(batch.spans) == 1
        assert batch.spans[0].start == 0
        return batch

    def forward(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: Batch) -> Tensor:
        self.cache.write(layer, plan.slots, k, v)
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.spec.scale, enable_gqa=True)
        return out[0].transpose(0, 1)


def run(options: Options) -> Result:
    torch.set_num_threads(options.threads)
    path = locate_model(MODEL)
    tokens = prompts(HfTokenizer.from_dir(path), 1, LENGTH)[0]
    tiled, untiled = (load_model(path, kernels=kernels, dtype=DTYPE) for kernels in (TorchKernels(), UntiledKernels()))
    cache = cache_for(tiled)
    spec = AttentionSpec(
        tiled.num_heads, tiled.num_kv_heads, tiled.head_dim, tiled.scale, BLOCK_SIZE, tiled.sliding_windows
    )
    by_row = SdpaFactory().build(spec, cache, CPU, tiled.dtype)
    causal = CausalAttention(spec, cache)
    whole = [LENGTH]
    variants: dict[str, tuple[DecoderModel, AttentionBackend, Sequence[int]]] = {
        "tiles, attention in query tiles (the product)": (tiled, by_row, whole),
        f"the same in chunks of {CHUNK}": (tiled, by_row, [CHUNK] * (LENGTH // CHUNK)),
        "tiles, one causal attention call": (tiled, causal, whole),
        "all rows at once, attention in query tiles": (untiled, by_row, whole),
        "all rows at once, one causal call": (untiled, causal, whole),
    }
    contenders = {
        name: partial(seconds_of, partial(prefill, Runner(model, model.kernels, attention), tokens, chunks))
        for name, (model, attention, chunks) in variants.items()
    }
    taken = alternate(contenders, options.rounds(7, 2))
    middle = medians(taken)
    free = middle["all rows at once, one causal call"]
    return Result(
        title=f"prefill of {LENGTH} tokens, {DTYPE}, {options.threads} threads",
        columns=("how", "tokens/s", "ms", "lowest..highest s", "time against free"),
        rows=[
            (name, f"{LENGTH / seconds:.0f}", f"{seconds * 1e3:.0f}", spread(taken[name]), f"{seconds / free:.2f}x")
            for name, seconds in middle.items()
        ],
        raw=taken,
    )


def cache_for(model: DecoderModel) -> KVCache:
    return KVCache(
        num_layers=model.num_layers,
        num_blocks=LENGTH // BLOCK_SIZE,
        block_size=BLOCK_SIZE,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        dtype=model.dtype,
        device=CPU,
    )


def prefill(runner: Runner, tokens: tuple[int, ...], chunks: Sequence[int]) -> None:
    """Compute the prompt in these chunks; logits of its last row only."""
    request = Request.admit(greedy("prefill", tokens, 1), seed=0, arrival=0.0, order=0, max_len=LENGTH + 1)
    request.blocks = list(range(LENGTH // BLOCK_SIZE))
    builder, start = BatchBuilder(BLOCK_SIZE, CPU), 0
    for length in chunks:
        last = start + length == LENGTH
        runner.forward(builder.build([Span(request, start, length, 0, int(last))]))
        start += length
