"""The decoder's layers on CUDA in ten launches each, over buffers that it keeps.

The residual's sum is in the norm that follows it, and one kernel norms and rotates queries and keys and writes keys and
values to the cache. The kernels round where the pieces of `specserve.models` do, so a layer has the bits of its pieces.
Declines where the attention backend writes the cache itself. Imports Triton.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from specserve.api import BadAnswerError
from specserve.api.models import NO_TAPS, BatchRows, TiledPass, copy_tap, dense_mlp
from specserve_cuda.kernels.linear import TritonLinear
from specserve_cuda.kernels.rows import SILU_BLOCK, norm_launch, rotate_and_write_kernel, silu_launch
from specserve_cuda.launch import Launch, blocks, dense, power_of_2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from specserve.api import AttentionBackend
    from specserve.api.attention import KVCache
    from specserve.api.batch import Batch
    from specserve.api.models import DecoderLayer, DecoderModel, Projection


class Buffers(NamedTuple):
    """What a pass writes between its launches, each [rows, numbers]; kept until a larger step comes."""

    joined: Tensor
    """[normed auxiliary input ; normed x], the input of layers with an auxiliary norm."""
    normed: Tensor
    qkv: Tensor
    q: Tensor
    added: Tensor
    """What the residual gets next."""
    gate_up: Tensor
    activated: Tensor

    def of(self, rows: int) -> Buffers:
        return Buffers(*(buffer[:rows] for buffer in self))


class AddAndNorm:
    """The norm of rows of one width, of which a sum may come first: x += added, out = norm of x."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self.weight, self.eps = weight, eps
        self.plain, self.adding = (norm_launch(len(weight), adds) for adds in (False, True))

    def __call__(self, x: Tensor, added: Tensor | None, out: Tensor) -> None:
        """x, added: [T, n], contiguous; out: [T, n], whose rows may lie apart. All aligned."""
        launch, more = (self.plain, x) if added is None else (self.adding, added)
        launch(len(x), 1, x, more, self.weight, out, x.shape[1], out.stride(0), self.eps)


class RotateAndWrite:
    """From a layer's qkv to its rotated queries, and to its keys and values in the cache."""

    def __init__(self, model: DecoderModel, layer: DecoderLayer, cache: KVCache, keys: Tensor, values: Tensor) -> None:
        self.grid_y = model.num_heads + 2 * model.num_kv_heads
        table, q_gain, k_gain = model.rotary, layer.q_norm, layer.k_norm
        has_norm = q_gain is not None and k_gain is not None
        if q_gain is None or k_gain is None:
            q_gain = k_gain = table.cos  # never read
        self.before = q_gain, k_gain, table.cos, table.sin
        self.after = keys, values, cache.key_limit, model.config.norm_eps
        constants: dict[str, int | bool] = {
            "HEADS": model.num_heads, "KV_HEADS": model.num_kv_heads, "HEAD_DIM": model.head_dim,
            "ROTARY_DIM": table.cos.shape[-1], "HAS_NORM": has_norm, "BLOCK": power_of_2(model.head_dim),
        }  # fmt: skip
        self.launch = Launch(rotate_and_write_kernel, constants, num_warps=1)

    def __call__(self, qkv: Tensor, positions: Tensor, slots: Tensor, q: Tensor) -> None:
        """qkv: [T, (heads + 2 * kv_heads) * d]; positions, slots: [T] int64; q: [T, heads * d]."""
        self.launch(len(qkv), self.grid_y, qkv, *self.before, positions, slots, q, *self.after)


class TritonPass(TiledPass):
    """`specserve.api.ForwardPass` for a model and a backend that lets its caller write the cache. Embedding and
    head are those of the pieces, for any number of rows."""

    def __init__(self, model: DecoderModel, attention: AttentionBackend, cache: KVCache) -> None:
        super().__init__(model, attention, row_tile=None)
        self.intermediate_size, eps = model.config.intermediate_size, model.config.norm_eps
        self.head_shape = (-1, model.num_heads, model.head_dim)
        self.input_norms = [norm_of(layer.input_norm, eps) for layer in model.layers]
        self.aux_norms = [norm_of(layer.aux_norm, eps) for layer in model.layers]
        self.mlp_norms = [AddAndNorm(weight, eps) for layer in model.layers if (weight := layer.mlp_norm) is not None]
        self.rotations = [
            RotateAndWrite(model, layer, cache, *slots) for layer, slots in zip(model.layers, cache.slots, strict=True)
        ]
        self.silu = silu_launch()
        self.buffers = self.make_buffers(0)

    def reserve(self, rows: int) -> None:
        if rows > len(self.buffers.added):
            self.buffers = self.make_buffers(rows)

    def make_buffers(self, rows: int) -> Buffers:
        model, hidden, inner = self.model, self.model.hidden_size, self.intermediate_size
        q_size, kv_size = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
        joined = 2 * hidden if any(layer.aux_norm is not None for layer in model.layers) else 0
        sizes = (joined, hidden, q_size + 2 * kv_size, q_size, hidden, 2 * inner, inner)
        return Buffers(*(torch.empty((rows, size), dtype=model.dtype, device=model.device) for size in sizes))

    def layers(
        self, x: Tensor, batch: Batch, plan: Any, taps: Mapping[int, Tensor] = NO_TAPS, aux: Tensor | None = None
    ) -> Tensor:
        x, rows = dense(x), len(x)
        if rows > len(self.buffers.added):
            self.reserve(power_of_2(rows))
        at, own = BatchRows(slice(0, rows), batch.lora), self.buffers.of(rows)
        q, added = own.q.view(self.head_shape), None
        for i, layer in enumerate(self.model.layers):
            qkv = project(layer.qkv_proj, self.layer_input(i, x, added, aux, own), own.qkv, at)
            copy_tap(taps, i, x)
            self.rotations[i](qkv, batch.positions, batch.slots, q)
            attended = self.attention.attend(i, q, plan)
            if attended.shape != q.shape:  # a broadcast would reach the rows of other requests
                raise BadAnswerError("gave attention of another shape than the queries")
            added = project(layer.o_proj, dense(attended.to(x.dtype)).view(rows, -1), own.added, at)
            self.mlp_norms[i](x, added, own.normed)
            mlp = dense_mlp(layer.mlp)
            gate_up = project(mlp.gate_up_proj, own.normed, own.gate_up, at)
            self.silu(rows, blocks(self.intermediate_size, SILU_BLOCK), gate_up, own.activated, self.intermediate_size)
            added = project(mlp.down_proj, own.activated, own.added, at)
        if added is not None:
            x.add_(added)
        copy_tap(taps, self.model.num_layers, x)
        return x

    def layer_input(self, i: int, x: Tensor, added: Tensor | None, aux: Tensor | None, own: Buffers) -> Tensor:
        """Adds `added` to x; what the layer's qkv_proj reads of it."""
        norm, aux_norm, hidden = self.input_norms[i], self.aux_norms[i], x.shape[1]
        read, out = own.normed, own.normed
        if aux_norm is not None:
            assert aux is not None, "the layer reads an auxiliary input"
            read, out = own.joined, own.joined[:, hidden:]
            aux_norm(dense(aux), None, own.joined[:, :hidden])
        if norm is not None:
            norm(x, added, out)
        else:
            if added is not None:
                x.add_(added)
            out.copy_(x)
        return read


def norm_of(weight: Tensor | None, eps: float) -> AddAndNorm | None:
    return None if weight is None else AddAndNorm(weight, eps)


def project(projection: Projection, x: Tensor, out: Tensor, at: BatchRows) -> Tensor:
    """x: [T, in] -> [T, out], in `out` where the kernel is ours."""
    if not isinstance(projection.packed, TritonLinear):
        return dense(projection(x, at).to(x.dtype))
    projection.packed.into(x, out)
    projection.add_deltas(x, out, at)
    return out


def fuse(model: DecoderModel, attention: AttentionBackend) -> TritonPass | None:
    """None where the backend writes the cache itself, and where something is done with the output of a projection."""
    cache = attention.writable_cache
    if any(projection.whole.combine is not None for projection in model.projections.values()):
        return None
    return None if cache is None or overrides_forward(attention) else TritonPass(model, attention, cache)


def overrides_forward(attention: AttentionBackend) -> bool:
    """Has a subclass its own `forward`, which the `attend` that it inherits would pass by? Of the attention of
    piecewise graphs it is asked of the backend that attends."""
    owner = type(getattr(attention, "backend", attention))
    return next("attend" not in vars(c) for c in owner.__mro__ if {"forward", "attend"} & vars(c).keys())
