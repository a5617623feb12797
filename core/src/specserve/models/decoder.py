"""The decoder: the row-wise pieces of a Llama-like model between attention calls.

Owns the order of operations and nothing else: arithmetic belongs to the kernel set, adapters to the projections,
keys and values to the attention backend, tiles to the runner. Rows map to rows; no piece looks at another row.
Letters: T rows, H hidden size, V vocabulary, d head_dim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from specserve.models.part import WHOLE_MODEL, ModelPart
from specserve.models.projection import Projection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from specserve.models.config import ModelConfig
    from specserve.models.projection import BatchRows
    from specserve.models.rope import RotaryTable
    from specserve.protocols import AdaptableProjection, AdapterWeights, KernelSet


class Rotation(NamedTuple):
    """cos, sin: [T, 1, rotary_dim] float32, one row per position of a tile; the same for every layer."""

    cos: Tensor
    sin: Tensor


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """Weights of one layer. Norms that the architecture does not have are None. With `aux_norm`, qkv_proj reads
    [normed auxiliary input ; normed x], as the layer of EAGLE-3 does (Li et al., 2025)."""

    input_norm: Tensor | None
    qkv_proj: Projection
    q_norm: Tensor | None
    k_norm: Tensor | None
    o_proj: Projection
    post_attention_norm: Tensor
    gate_up_proj: Projection
    down_proj: Projection
    aux_norm: Tensor | None = None


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """embedding: [V, H]; final_norm: [H], None where the head reads the last layer's output as it is."""

    embedding: Tensor
    layers: tuple[DecoderLayer, ...]
    final_norm: Tensor | None
    lm_head: Projection
    projections: Mapping[str, Projection]
    """Every projection by name, those of the layers and the head."""
    part: ModelPart = WHOLE_MODEL
    read_whole: Callable[[str], Tensor] | None = None
    """Reads a tensor of the checkpoint, where these weights are a part of the model's."""


class DecoderModel:
    """Inference only, plain tensors; the caller holds torch.inference_mode. Made by `loader.load_model`."""

    def __init__(self, config: ModelConfig, kernels: KernelSet, weights: DecoderWeights, rotary: RotaryTable) -> None:
        self.config = config
        self.kernels = kernels
        self.num_layers = config.num_layers
        self.vocab_size = config.vocab_size
        self.hidden_size = config.hidden_size
        self.num_heads = config.num_heads
        self.num_kv_heads = config.num_kv_heads
        self.head_dim = config.head_dim
        self.scale = config.head_dim**-0.5
        self.sliding_windows = config.sliding_windows
        self.max_model_len = rotary.cos.shape[0]
        self.dtype = weights.embedding.dtype
        self.device = weights.embedding.device
        self.projections: Mapping[str, AdaptableProjection] = weights.projections
        self.embedding = weights.embedding
        self.part, self.read_whole = weights.part, weights.read_whole
        self.layers = weights.layers
        self.final_norm = weights.final_norm
        self.lm_head = weights.lm_head
        self.rotary = rotary
        self._qkv_heads = (config.num_heads, config.num_kv_heads, config.num_kv_heads)

    def embed(self, ids: Tensor) -> Tensor:
        """ids: [T] int64 -> [T, H]."""
        return self.part.embed(self.embedding, ids)

    def whole_embedding(self) -> Tensor:
        """[V, H], read again where this process has a part of it."""
        return self.embedding if self.read_whole is None else self.read_whole("model.embed_tokens.weight")

    def whole_head(self) -> Projection:
        """The output head for rows that this process alone computes; read again where it has a part of it."""
        if self.read_whole is None:
            return self.lm_head
        weight = self.read_whole(f"{'model.embed_tokens' if self.config.tied else 'lm_head'}.weight")
        head = Projection("lm_head", weight, None, self.kernels.linear)
        head.finalize(self.kernels)
        return head

    def pack_adapter(self, weights: AdapterWeights) -> Any:
        """weights: of the whole model. What `Segment.adapter` is for its rows, until `free_adapter`."""
        return self.part.pack_adapter(self.kernels, weights)

    def free_adapter(self, packed: object) -> None:
        self.part.free_adapter(packed)

    def rotation(self, positions: Tensor) -> Rotation:
        """positions: [T] int64, below max_model_len. Once per tile, for all layers."""
        return Rotation(self.rotary.cos.index_select(0, positions), self.rotary.sin.index_select(0, positions))

    def attention_input(
        self, layer: int, x: Tensor, rotation: Rotation, at: BatchRows, aux: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """x, aux: [T, H] -> q [T, heads, d], k and v [T, kv_heads, d]; views of larger tensors."""
        weights, kernels, eps = self.layers[layer], self.kernels, self.config.norm_eps
        num_q, num_kv, _ = self._qkv_heads
        normed = self.normed(x, weights.input_norm)
        if weights.aux_norm is not None:
            assert aux is not None, "the layer reads an auxiliary input"
            normed = torch.cat((self.normed(aux, weights.aux_norm), normed), -1)
        qkv = weights.qkv_proj(normed, at)
        qkv = qkv.view(-1, num_q + 2 * num_kv, self.head_dim)
        if weights.q_norm is not None and weights.k_norm is not None:
            q, k, v = qkv.split_with_sizes(self._qkv_heads, 1)
            q, k = kernels.rms_norm(q, weights.q_norm, eps), kernels.rms_norm(k, weights.k_norm, eps)
            qk = torch.cat((q, k), 1)
        else:
            qk, v = qkv.split_with_sizes((num_q + num_kv, num_kv), 1)
        q, k = kernels.rotary(qk, rotation.cos, rotation.sin).split_with_sizes((num_q, num_kv), 1)
        return q, k, v

    def attention_output(self, layer: int, x: Tensor, attn: Tensor, at: BatchRows) -> Tensor:
        """x: [T, H] as `attention_input` got it; attn: [T, heads, d] -> the layer's output [T, H], a fresh tensor."""
        weights, kernels = self.layers[layer], self.kernels
        x = x + weights.o_proj(attn.flatten(1), at)
        gate_up = weights.gate_up_proj(kernels.rms_norm(x, weights.post_attention_norm, self.config.norm_eps), at)
        return x.add_(weights.down_proj(kernels.silu_and_multiply(gate_up), at))

    def head(self, x: Tensor) -> Tensor:
        """x: [T, H], the last layer's output -> logits [T, V] float32."""
        return self.lm_head(self.normed(x, self.final_norm)).float()

    def normed(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """x itself where there is no norm."""
        return x if weight is None else self.kernels.rms_norm(x, weight, self.config.norm_eps)
