"""The decoder: the row-wise pieces of a Llama-like model between attention calls.

Owns the order of operations and nothing else: arithmetic belongs to the kernel set, adapters to the projections,
keys and values to the attention backend, tiles to the runner. Rows map to rows; no piece looks at another row.
Letters: T rows, H hidden size, V vocabulary, d head_dim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.models.part import WHOLE_MODEL, ModelPart
from specserve.models.projection import Projection, vectors_of
from specserve.models.served_model import ServedModel
from specserve.models.target_norm import TargetNorm
from specserve.protocols import Mixer, RecurrentMixer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from specserve.models.config import ModelConfig, QueryScale
    from specserve.models.mlp import Mlp
    from specserve.models.projection import BatchRows
    from specserve.models.rope import RotaryTable
    from specserve.models.token_inputs import GivenInput, InputsOfTokens
    from specserve.protocols import AdaptableProjection, KernelSet


class Rotation(NamedTuple):
    """cos, sin: [T, 1, rotary_dim] float32, one row per position of a tile."""

    cos: Tensor
    sin: Tensor
    query_scale: Tensor | None = None
    """[T, 1, 1] in the model's dtype: of rotated queries."""


class AttentionInput(NamedTuple):
    """Views of larger tensors: q [T, heads, d], k and v [T, kv_heads, d]."""

    q: Tensor
    k: Tensor
    v: Tensor
    gates: Tensor | None = None
    """[T, heads] or [T, heads * d], see `ModelConfig.attention_gate`: for `attention_output`."""


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """Weights of one layer. Norms that the architecture does not have are None; those in float32, in a model of another
    dtype, are multiplied before the rounding. With `aux_norm`, qkv_proj reads [normed auxiliary input ; normed x], as
    the layer of EAGLE-3 does (Li et al., 2025). With a `mixer`, which stands in place of attention, qkv_proj is its
    input map and o_proj its output map."""

    input_norm: Tensor | None
    qkv_proj: Projection
    q_norm: Tensor | None
    k_norm: Tensor | None
    o_proj: Projection
    mlp_norm: Tensor | None
    mlp: Mlp
    aux_norm: Tensor | None = None
    attention_output_norm: Tensor | None = None
    mlp_output_norm: Tensor | None = None
    sinks: Tensor | None = None
    """[heads] float32."""
    mixer: Mixer | RecurrentMixer | None = None
    gate_proj: Projection | None = None
    """From the layer's normed input to gates of attention's heads: see `ModelConfig.attention_gate`."""
    given: GivenInput | None = None
    """For its vector of a token: see `ModelConfig.token_inputs`."""
    scale: Tensor | None = None
    """[1]: of the layer's output."""

    @property
    def qk_norms(self) -> tuple[Tensor | None, Tensor | None]:
        return self.q_norm, self.k_norm


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """embedding: [V, H]; final_norm: [H], None where the head reads the last layer's output as it is."""

    embedding: Tensor | Projection
    """A projection, whose weight it is, where it is kept quantised."""
    layers: tuple[DecoderLayer, ...]
    final_norm: Tensor | None
    lm_head: Projection
    projections: Mapping[str, Projection]
    """Every projection by name, those of the layers and the head."""
    part: ModelPart = WHOLE_MODEL
    token_inputs: InputsOfTokens | None = None
    read_whole: Callable[[str], Tensor] | None = None
    """Reads a tensor of the checkpoint, where these weights are a part of the model's."""
    tables: Sequence[Projection] = ()


class DecoderModel(ServedModel):
    """Inference only, plain tensors; the caller holds torch.inference_mode. Made by `loader.load_model`."""

    def __init__(
        self,
        config: ModelConfig,
        kernels: KernelSet,
        weights: DecoderWeights,
        rotary: RotaryTable,
        layer_rotaries: Sequence[RotaryTable | None] = (),
    ) -> None:
        """rotary: of `config.rope`; layer_rotaries: of `config.layer_ropes`."""
        self.config = config
        self.kernels = kernels
        self.family = config.family
        self.num_layers = config.num_layers
        self.vocab_size = config.vocab_size
        self.hidden_size = config.hidden_size
        self.num_heads = config.num_heads
        self.num_kv_heads = config.num_kv_heads
        self.head_dim = config.head_dim
        of_scores = config.multipliers.attention
        self.scale = config.head_dim**-0.5 if of_scores is None else of_scores
        attending = config.attention_layers
        self.cache_layers = {layer: place for place, layer in enumerate(attending)}
        """Of layers with attention: the place of their keys and values, by which backends and the KV cache know
        them."""
        self.sliding_windows = tuple(config.sliding_windows[layer] for layer in attending)
        self.soft_caps = (config.multipliers.score_cap,) * len(attending)
        self.sinks = tuple(weights.layers[layer].sinks for layer in attending)
        self.token_widths = config.token_widths
        self.kv_sources: Mapping[int, int] = {}
        """By layer that makes no keys and values: the earlier one whose it reads."""
        mixers = {number: layer.mixer for number, layer in enumerate(weights.layers)}
        near = {number: mixer for number, mixer in mixers.items() if isinstance(mixer, Mixer)}
        recurrent = {number: mixer for number, mixer in mixers.items() if isinstance(mixer, RecurrentMixer)}
        self.state_layers = {layer: place for place, layer in enumerate(near)}
        """Of layers with a mixer of neighbouring tokens: their place in `token_states`."""
        self.recurrent_layers = {layer: place for place, layer in enumerate(recurrent)}
        """Of recurrent layers: their place in `layer_states`."""
        self.reach = max((mixer.reach for mixer in near.values()), default=None)
        self.recurrent = tuple(recurrent.values())
        self.max_model_len = rotary.cos.shape[0]
        self.dtype = weights.embedding.dtype
        self.device = rotary.cos.device
        self.projections: Mapping[str, AdaptableProjection] = weights.projections
        self.tables = weights.tables
        self._embedding = weights.embedding
        scale = config.multipliers.embedding
        self.embedding_scale = None if scale == 1.0 else torch.tensor(scale, dtype=self.dtype, device=self.device)
        self.part, self.read_whole = weights.part, weights.read_whole
        self.layers = weights.layers
        self.final_norm = weights.final_norm
        self.lm_head = weights.lm_head
        self.rotary = rotary
        self.query_scale = query_scales(config.query_scale, self.max_model_len, self.dtype, self.device)
        self.layer_rotaries = tuple(layer_rotaries) or (rotary,) * config.num_layers
        """None where the layer rotates nothing."""
        self._qkv_heads = (config.num_heads, config.num_kv_heads, config.num_kv_heads)

    def embed(self, ids: Tensor) -> Tensor:
        """ids: [T] int64 -> [T, H]."""
        rows = self.part.embed(self.embedding_rows, ids)
        return rows if self.embedding_scale is None else rows * self.embedding_scale

    def embedding_rows(self, ids: Tensor) -> Tensor:
        """ids: [T] int64, of the rows that this part has -> [T, H]."""
        return vectors_of(self._embedding, ids)

    @property
    def embedding(self) -> Tensor:
        """[V, H], the rows that this part has; made anew where it is kept quantised."""
        kept = self._embedding
        return kept.rows(torch.arange(kept.out_features)) if isinstance(kept, Projection) else kept

    def output_norm(self) -> TargetNorm:
        return TargetNorm(self.final_norm, self.config.norm_eps)

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

    def rotations(self, positions: Tensor) -> Sequence[Rotation | None]:
        """positions: [T] int64, below max_model_len. Once per tile: that of every layer."""
        tables = {id(table): table for table in self.layer_rotaries if table is not None}
        scale = None if self.query_scale is None else self.query_scale.index_select(0, positions)
        made = {
            key: Rotation(table.cos.index_select(0, positions), table.sin.index_select(0, positions), scale)
            for key, table in tables.items()
        }
        return [made.get(id(table)) for table in self.layer_rotaries]

    def attention_input(
        self, layer: int, x: Tensor, rotation: Rotation | None, at: BatchRows, aux: Tensor | None = None
    ) -> AttentionInput:
        """x, aux: [T, H]. rotation: that of the layer."""
        weights, kernels = self.layers[layer], self.kernels
        num_q, num_kv, _ = self._qkv_heads
        normed = self.normed(x, weights.input_norm)
        if weights.aux_norm is not None:
            assert aux is not None, "the layer reads an auxiliary input"
            normed = torch.cat((self.normed(aux, weights.aux_norm), normed), -1)
        qkv, gates = weights.qkv_proj(normed, at), None
        if weights.gate_proj is not None:
            gates = weights.gate_proj(normed, at)
        elif self.config.attention_gate == "number":
            queries, others = qkv.tensor_split((2 * num_q * self.head_dim,), 1)
            q, of_heads = queries.view(-1, num_q, 2, self.head_dim).unbind(2)
            gates, qkv = of_heads.flatten(1), torch.cat((q.flatten(1), others), 1)
        qkv = qkv.view(-1, num_q + 2 * num_kv, self.head_dim)
        if weights.q_norm is not None and weights.k_norm is not None:
            q, k, v = qkv.split_with_sizes(self._qkv_heads, 1)
            q, k = self.normed_heads(q, weights.q_norm), self.normed_heads(k, weights.k_norm)
            qk = torch.cat((q, k), 1)
        else:
            qk, v = qkv.split_with_sizes((num_q + num_kv, num_kv), 1)
        rotated = qk if rotation is None else kernels.rotary(qk, rotation.cos, rotation.sin)
        q, k = rotated.split_with_sizes((num_q, num_kv), 1)
        if rotation is not None and rotation.query_scale is not None:
            q = q * rotation.query_scale
        return AttentionInput(q, k, v, gates)

    def mixer_input(self, layer: int, x: Tensor, at: BatchRows) -> Tensor:
        """x: [T, H] -> what the layer's mixer reads of it."""
        weights = self.layers[layer]
        return weights.qkv_proj(self.normed(x, weights.input_norm), at)

    def normed_heads(self, x: Tensor, weight: Tensor) -> Tensor:
        """x: [T, heads, d]; weight: [d], or [heads * d] for one norm of all heads."""
        rows = x if len(weight) == self.head_dim else x.flatten(1)
        return self.kernels.rms_norm(rows, weight, self.config.norm_eps).view(x.shape)

    def attention_output(
        self, layer: int, x: Tensor, attn: Tensor, at: BatchRows, gates: Tensor | None = None
    ) -> Tensor:
        """x: [T, H] as `attention_input` got it; attn: [T, heads, d], or [T, n] of a mixer -> the layer's output
        [T, H], a fresh tensor."""
        weights = self.layers[layer]
        attn = attn.flatten(1) if gates is None else self.kernels.gate(attn.flatten(1), gates)
        x = x + self.branch(weights.o_proj(attn, at), weights.attention_output_norm)
        added = weights.mlp(self.normed(x, weights.mlp_norm), at)
        return x.add_(self.branch(added, weights.mlp_output_norm))

    def layer_inputs(self, x: Tensor, ids: Tensor, at: BatchRows) -> Tensor | None:
        """x: [T, H], what `embed` gave of these ids, [T] int64. What every layer is given of each token beside the
        hidden state, [layers, T, d]; None in models that have no such inputs."""

    def layer_end(self, layer: int, x: Tensor, at: BatchRows, given: Tensor | None = None) -> Tensor:
        """x: [T, H], what `attention_output` gave; given: of `layer_inputs`, that of this layer -> the layer's output
        [T, H]."""
        return x

    def branch(self, x: Tensor, norm: Tensor | None) -> Tensor:
        """What attention or the MLP adds, from the output of its last linear map."""
        x, scale = self.normed(x, norm), self.config.multipliers.residual
        return x if scale == 1.0 else x * scale

    def head(self, x: Tensor) -> Tensor:
        """x: [T, H], the last layer's output -> logits [T, V] float32."""
        return self.finished(self.lm_head(self.normed(x, self.final_norm)).float())

    def finished(self, logits: Tensor) -> Tensor:
        """logits: [T, V] float32, as the output head gives them; with what the family does to them, in place."""
        m = self.config.multipliers
        if m.logits_divisor != 1.0:
            logits /= m.logits_divisor
        if m.logit_cap is not None:
            for row in logits:  # of equal lengths: torch computes the last numbers of a call another way
                row.div_(m.logit_cap).tanh_().mul_(m.logit_cap)
        return logits

    def normed(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """x itself where there is no norm."""
        return x if weight is None else self.kernels.rms_norm(x, weight, self.config.norm_eps)


def query_scales(scale: QueryScale | None, length: int, dtype: torch.dtype, device: torch.device) -> Tensor | None:
    """By position, [length, 1, 1]: computed in float32."""
    if scale is None:
        return None
    turns = (torch.arange(length, dtype=torch.float32) / scale.length).floor()
    return (1 + scale.beta * (1 + turns).log()).to(device, dtype)[:, None, None]
