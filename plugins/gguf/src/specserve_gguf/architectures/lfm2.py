"""LFM2 and LFM2.5, dense and with experts: layers without key heads have a short convolution in place of attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve_gguf.architectures.architecture import Architecture
from specserve_gguf.keys import MAX_LAYERS
from specserve_gguf.parts import Part

if TYPE_CHECKING:
    from collections.abc import Iterator

CONV = {"shortconv.in_proj": "conv.in_proj", "shortconv.out_proj": "conv.out_proj", "shortconv.conv": "conv.conv"}
FINAL_NORM = "token_embd_norm.weight"
"""llama.cpp's name for the norm before the output head in these files."""


class Lfm2(Architecture):
    name = "lfm2"
    model_type = "lfm2"
    model_class = "Lfm2ForCausalLM"
    theta = 1_000_000.0

    @property
    def kv_heads_of_layers(self) -> list[int]:
        """0 of layers without attention."""
        found = self.keys.counts_of_layers("attention.head_count_kv", self.num_layers)
        if len({*found} - {0}) != 1:
            raise self.keys.wrong("attention.head_count_kv", "the same number in all layers that have key heads")
        return found

    @property
    def kv_heads(self) -> int:
        return max(self.kv_heads_of_layers)

    def own_config(self) -> dict[str, Any]:
        return {
            "layer_types": ["full_attention" if heads else "conv" for heads in self.kv_heads_of_layers],
            "conv_L_cache": self.keys.whole("shortconv.l_cache"),
            "conv_bias": self.some_layer_has("shortconv.in_proj.bias"),
            "norm_eps": self.keys.number("attention.layer_norm_rms_epsilon"),
            "sliding_window": self.window,
            **self.mlp_config(),
        }

    def mlp_config(self) -> dict[str, Any]:
        """`feed_forward_length` is the MLP's width itself."""
        return {"block_auto_adjust_ff_dim": False}

    def parts_of(self, tensor: str) -> Iterator[tuple[str, Part]]:
        if tensor == FINAL_NORM:
            yield "model.norm.weight", Part(tensor)
        else:
            yield from super().parts_of(tensor)

    def of_layer(self, inner: str, tensor: str) -> Iterator[tuple[str, Part]]:
        if inner in CONV:
            is_kernel = inner == "shortconv.conv" and tensor.endswith(".weight")
            yield CONV[inner], Part(tensor, of_channels=is_kernel)
        else:
            yield from super().of_layer(inner, tensor)


class Lfm2Moe(Lfm2):
    name = "lfm2moe"
    model_type = "lfm2_moe"
    model_class = "Lfm2MoeForCausalLM"

    def mlp_config(self) -> dict[str, Any]:
        self.check_sigmoids()
        return {
            "num_experts": self.num_experts,
            "num_experts_per_tok": self.keys.whole("expert_used_count"),
            "moe_intermediate_size": self.keys.whole("expert_feed_forward_length"),
            "num_dense_layers": self.keys.count("leading_dense_block_count", MAX_LAYERS),
            "norm_topk_prob": self.keys.flag("expert_weights_norm", default=True),
            "routed_scaling_factor": self.keys.number("expert_weights_scale", 1.0),
            "use_expert_bias": self.some_layer_has("exp_probs_b.bias"),
        }

    def of_layer(self, inner: str, tensor: str) -> Iterator[tuple[str, Part]]:
        if inner == "exp_probs_b":
            yield "mlp.choice", Part(tensor)
        else:
            yield from super().of_layer(inner, tensor)
