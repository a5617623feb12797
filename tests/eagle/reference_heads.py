"""Draft heads as their papers define them, in plain torch over transformers' own layers; float32, no cache, no batch.

A head reads pairs (hidden state p, token p + 1), of which the i-th has position i + 1, and everything is computed anew
for every draft token. `tensors` has canonical names; `config` is anything with HeadConfig's attributes. Each forward
returns the hidden states that the head feeds back, [N, H], and its logits, [N, D].
Sources: EAGLE (Li et al., 2024), EAGLE-3 (Li et al., 2025), EAGLE-3.1 (arXiv 2605.09992), multi-token prediction
(DeepSeek-V3, 2024).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaConfig, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer

if TYPE_CHECKING:
    from torch import Tensor

    Tensors = dict[str, Tensor]

LAYER_NAMES = {
    "input_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    **{name: f"self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")},
    **{name: f"mlp.{name}" for name in ("gate_proj", "up_proj", "down_proj")},
}


class Forward(Protocol):
    def __call__(
        self, tensors: Tensors, config: Any, hidden: Tensor, next_tokens: Tensor, embedding: Tensor, head: Tensor | None
    ) -> tuple[Tensor, Tensor]: ...


def eagle3_forward(
    tensors: Tensors, config: Any, hidden: Tensor, next_tokens: Tensor, embedding: Tensor, head: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """hidden: [N, 3 H_target], or [N, H] where the states are those of `eagle3_fuse` or the head's own."""
    x = eagle3_fuse(tensors, config, hidden) if hidden.shape[1] == tensors["fc"].shape[1] else hidden
    embedded = embed(tensors, next_tokens, embedding)
    layers = [decoder_layer(tensors, config, i) for i in range(config.num_layers)]
    rotation, mask = rotation_of(config, len(x)), causal_mask(len(x))
    first = layers[0]
    normed = rms_norm(x, tensors["layers.0.hidden_norm"], config.norm_eps)
    both = torch.cat((first.input_layernorm(embedded), normed), -1)
    residual = normed if config.norm_before_residual else x
    x = residual + first.self_attn(both[None], position_embeddings=rotation, attention_mask=mask)[0][0]
    x = x + first.mlp(first.post_attention_layernorm(x))
    for layer in layers[1:]:
        x = layer(x[None], attention_mask=mask, position_embeddings=rotation)[0]
    normed = rms_norm(x, tensors["norm"], config.norm_eps)
    return normed if config.norm_output else x, normed @ output_head(tensors, head).T


def eagle3_fuse(tensors: Tensors, config: Any, hidden: Tensor) -> Tensor:
    """[N, 3 H_target] -> [N, H]: the target's hidden states of three layers as one. EAGLE-3.1 norms each of them."""
    if "input_norm" in tensors:
        hidden = rms_norm(hidden, tensors["input_norm"], config.norm_eps)
    elif "fc_norm.0" in tensors:
        parts = hidden.split(len(tensors["fc_norm.0"]), -1)
        normed = [rms_norm(part, tensors[f"fc_norm.{i}"], config.norm_eps) for i, part in enumerate(parts)]
        hidden = torch.cat(normed, -1)
    return F.linear(hidden, tensors["fc"], tensors.get("fc.bias"))


def eagle_forward(
    tensors: Tensors, config: Any, hidden: Tensor, next_tokens: Tensor, embedding: Tensor, head: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """hidden: [N, H], behind the target's final norm, or the head's own. Layer 0 has no norm at its input."""
    pair = (embed(tensors, next_tokens, embedding), hidden)
    x = F.linear(torch.cat(pair if config.embedding_first else pair[::-1], -1), tensors["fc"], tensors.get("fc.bias"))
    x = run_layers(tensors, config, x)
    return x, x @ output_head(tensors, head).T


def mtp_forward(
    tensors: Tensors, config: Any, hidden: Tensor, next_tokens: Tensor, embedding: Tensor, head: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """hidden: [N, H], behind the target's final norm, or the head's own, which is fed back behind its final norm."""
    embedded = rms_norm(embed(tensors, next_tokens, embedding), tensors["enorm"], config.norm_eps)
    pair = (embedded, rms_norm(hidden, tensors["hnorm"], config.norm_eps))
    x = F.linear(torch.cat(pair if config.embedding_first else pair[::-1], -1), tensors["fc"], tensors.get("fc.bias"))
    x = run_layers(tensors, config, x)
    normed = rms_norm(x, tensors["norm"], config.norm_eps)
    return normed if config.feeds_back_norm else x, normed @ output_head(tensors, head).T


FORWARDS: dict[str, Forward] = {"eagle3": eagle3_forward, "eagle": eagle_forward, "mtp": mtp_forward}


def draft_greedily(
    tensors: Tensors, config: Any, pairs: tuple[Tensor, Tensor], k: int, tables: tuple[Tensor, Tensor | None]
) -> list[int]:
    """Target ids of k draft tokens after the pairs (hidden, next_tokens); tables: the target's embedding and head."""
    hidden, tokens = pairs
    states = eagle3_fuse(tensors, config, hidden) if config.kind == "eagle3" else hidden
    for _ in range(k):
        own, logits = FORWARDS[config.kind](tensors, config, states, tokens, *tables)
        draft = logits[-1].argmax()
        target = draft + tensors["d2t"][draft] if "d2t" in tensors else draft
        states, tokens = torch.cat((states, own[-1:])), torch.cat((tokens, target[None]))
    return tokens[len(pairs[1]) :].tolist()


def embed(tensors: Tensors, tokens: Tensor, embedding: Tensor) -> Tensor:
    return tensors.get("embed_tokens", embedding)[tokens]


def output_head(tensors: Tensors, head: Tensor | None) -> Tensor:
    own = tensors.get("lm_head", head)
    assert own is not None, "this head has no output head of its own: pass the target's"
    return own


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def run_layers(tensors: Tensors, config: Any, x: Tensor) -> Tensor:
    rotation, mask = rotation_of(config, len(x)), causal_mask(len(x))
    for i in range(config.num_layers):
        x = decoder_layer(tensors, config, i)(x[None], attention_mask=mask, position_embeddings=rotation)[0]
    return x


def causal_mask(N: int) -> Tensor:
    return torch.full((N, N), float("-inf")).triu(1)[None, None]


def rotation_of(config: Any, N: int) -> tuple[Tensor, Tensor]:
    """cos and sin of positions 1 to N."""
    rotary: Any = LlamaRotaryEmbedding(transformers_config(config))
    cos, sin = rotary(torch.zeros(1), torch.arange(1, N + 1)[None])
    return cos, sin


@cache  # made for every layer of every draft token
def transformers_config(config: Any) -> Any:
    """One config for both families' layers; biases are set layer by layer."""
    rope = {name: value for name in ROPE_NAMES if (value := getattr(config.rope, name, None)) is not None}
    kind: Any = Qwen3Config if config.qk_norm else LlamaConfig
    return kind(
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        rms_norm_eps=config.norm_eps,
        max_position_embeddings=config.max_position_embeddings,
        rope_parameters=rope,
        mlp_bias=config.mlp_bias,
        attn_implementation="eager",
    )


ROPE_NAMES = (
    *("rope_type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor"),
    *("original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow"),
)


def decoder_layer(tensors: Tensors, config: Any, index: int) -> Any:
    """transformers' layer with the head's weights; every one of them is used and none is left at random."""
    kind: Any = Qwen3DecoderLayer if config.qk_norm else LlamaDecoderLayer
    layer = kind(transformers_config(config), 0)
    H, q_size, kv_size = config.hidden_size, config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    inputs = 2 * H if config.kind == "eagle3" and index == 0 else H
    for name, rows in (("q_proj", q_size), ("k_proj", kv_size), ("v_proj", kv_size)):
        setattr(layer.self_attn, name, nn.Linear(inputs, rows, bias=config.qkv_bias))
    layer.self_attn.o_proj = nn.Linear(q_size, H, bias=config.o_bias)
    if config.kind == "eagle" and index == 0:
        layer.input_layernorm = nn.Identity()
    state = {}
    for name, tensor in tensors.items():
        part = name.removeprefix(f"layers.{index}.")
        if part != name and part != "hidden_norm":
            module = part.removesuffix(".bias")
            state[LAYER_NAMES[module] + (".weight" if module == part else ".bias")] = tensor.float()
    layer.load_state_dict(state)
    return layer.eval()
