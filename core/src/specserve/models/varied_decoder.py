"""A decoder whose layers differ in their heads, may read another layer's keys and values, and may be given a vector of
each token, as those of Gemma 4. Its pieces take any kernels; no kernel set fuses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.errors import ModelError
from specserve.models.decoder import AttentionInput, DecoderModel
from specserve.models.layer_attention import OF_TARGET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.models.config import ModelConfig
    from specserve.models.decoder import DecoderWeights, Rotation
    from specserve.models.projection import BatchRows
    from specserve.models.rope import RotaryTable
    from specserve.protocols import KernelSet


class VariedDecoder(DecoderModel):
    """What differs from layer to layer is in `ModelConfig.layer_attention`."""

    def __init__(
        self,
        config: ModelConfig,
        kernels: KernelSet,
        weights: DecoderWeights,
        rotary: RotaryTable,
        layer_rotaries: Sequence[RotaryTable | None] = (),
    ) -> None:
        refuse_others(config, has_aux=any(layer.aux_norm is not None for layer in weights.layers))
        super().__init__(config, kernels, weights, rotary, layer_rotaries)
        self.attentions = tuple(config.attention(layer) for layer in range(config.num_layers))
        self.head_shapes = config.head_shapes
        if len({*self.head_shapes}) == 1:  # perhaps not that of config.json
            self.num_kv_heads, self.head_dim = self.head_shapes[0]
        self.kv_sources = {
            layer: each.reads
            for layer, each in enumerate(self.attentions)
            if each.reads is not None and each.reads != OF_TARGET
        }
        self.cache_layers |= {layer: self.cache_layers[source] for layer, source in self.kv_sources.items()}
        self.ones = {
            each.head_dim: torch.ones(each.head_dim, dtype=torch.float32, device=self.device)
            for each in self.attentions
        }
        """The weights of norms of values, by the size of a head."""
        self.of_tokens = weights.token_inputs

    def attention_input(
        self, layer: int, x: Tensor, rotation: Rotation | None, at: BatchRows, aux: Tensor | None = None
    ) -> AttentionInput:
        """Keys and values of a layer that reads those of another have no heads."""
        weights, own, num_q = self.layers[layer], self.attentions[layer], self.num_heads
        rows = weights.qkv_proj(self.normed(x, weights.input_norm), at).view(len(x), -1, own.head_dim)
        num_kv = 0 if own.reads is not None else own.num_kv_heads
        q, k = rows[:, :num_q], rows[:, num_q : num_q + num_kv]
        v = rows[:, num_q + num_kv :] if own.projects_values else k
        q, k = (
            x if norm is None else self.normed_heads(x, norm) for x, norm in zip((q, k), weights.qk_norms, strict=True)
        )
        if self.config.value_norm and num_kv:
            v = self.normed_heads(v, self.ones[own.head_dim])
        qk = torch.cat((q, k), 1)
        rotated = qk if rotation is None else self.kernels.rotary(qk, rotation.cos, rotation.sin)
        q, k = rotated.split_with_sizes((num_q, num_kv), 1)
        return AttentionInput(q, k, v)

    def normed_heads(self, x: Tensor, weight: Tensor) -> Tensor:
        """x: [T, heads, d]; weight: [d]."""
        return self.kernels.rms_norm(x, weight, self.config.norm_eps)

    def layer_inputs(self, x: Tensor, ids: Tensor, at: BatchRows) -> Tensor | None:
        return None if self.of_tokens is None else self.of_tokens(self.kernels, x, ids, at)

    def layer_end(self, layer: int, x: Tensor, at: BatchRows, given: Tensor | None = None) -> Tensor:
        weights, kernels = self.layers[layer], self.kernels
        if given is not None:
            assert weights.given is not None, "the model has inputs of tokens"
            gate, output, norm = weights.given
            opened = kernels.gelu_and_multiply(torch.cat((gate(x, at), given), -1))
            x = x + self.normed(output(opened, at), norm)
        return x if weights.scale is None else x * weights.scale


def refuse_others(config: ModelConfig, *, has_aux: bool) -> None:
    """What `VariedDecoder.attention_input` does not compute."""
    found = {
        "attention_gate": config.attention_gate is not None,
        "query_scale": config.query_scale is not None,
        'qk_norm_of "all heads"': config.qk_norm and config.qk_norm_of == "all heads",
        "an auxiliary input": has_aux,
    }
    if names := [name for name, there in found.items() if there]:
        raise ModelError(
            f"family {config.family}: VariedDecoder does not compute {', '.join(names)}. Give the family a decoder "
            "derived from it that does, or leave that out."
        )
