"""Gemma 4, text: heads of two sizes, layers that read keys and values of others, vectors of tokens in every layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve_gguf.architectures.gemma import ACTIVATION, Gemma3
from specserve_gguf.architectures.rotation import FREQUENCIES, numbers, share_of
from specserve_gguf.cursor import broken
from specserve_gguf.keys import MAX_HEAD
from specserve_gguf.parts import Part

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN_TABLE = "per_layer_token_embd.weight"
OF_TOKENS = {
    "per_layer_token_embd": "model.embed_tokens_per_layer",
    "per_layer_model_proj": "model.per_layer_model_projection",
    "per_layer_proj_norm": "model.per_layer_projection_norm",
}
OF_LAYERS = {
    "inp_gate": "per_layer_input_gate",
    "proj": "per_layer_projection",
    "post_norm": "post_per_layer_input_norm",
    "post_ffw_norm_1": "post_feedforward_layernorm_1",
    "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
    "post_ffw_norm_2": "post_feedforward_layernorm_2",
}
VECTORS = {
    "layer_output_scale.weight": "layer_scalar",
    "ffn_gate_inp.scale": "router.scale",
    "ffn_down_exps.scale": "router.per_expert_scale",
}
"""By their whole names in the layer: Hugging Face's have no `.weight`."""
STANDS_STILL = 1e29
"""A frequency divided by at least this rotates nothing: converters write 1e30."""
MAX_TOKEN_SIZE = 1 << 16
KEYS, WINDOWED, WHOLE = "attention.head_count_kv", "sliding_attention", "full_attention"


class Gemma4(Gemma3):
    name = "gemma4"
    model_type = "gemma4_text"
    model_class = "Gemma4ForCausalLM"
    norm_offset = 0.0

    @property
    def head_dim(self) -> int:
        """Of layers with a window."""
        found = self.keys.at_most("attention.key_length_swa", MAX_HEAD, self.whole_head_dim)
        if self.keys.whole("attention.value_length_swa", found) != found:
            raise self.keys.wrong("attention.value_length_swa", f"as attention.key_length_swa, {found}")
        if self.keys.whole("rope.dimension_count_swa", found) != found:
            raise self.keys.wrong("rope.dimension_count_swa", f"as attention.key_length_swa, {found}")
        return found

    @property
    def whole_head_dim(self) -> int:
        """Of layers without one."""
        return super().head_dim

    @property
    def kinds(self) -> list[str]:
        """The last layer has no window, as in Hugging Face; nor has every sixth one, where the file says nothing."""
        found = self.keys.flags_of_layers("attention.sliding_window_pattern", self.num_layers)
        windowed = found or [(layer + 1) % 6 != 0 for layer in range(self.num_layers)]
        return [WINDOWED if each else WHOLE for each in windowed[:-1]] + [WHOLE]

    @property
    def kv_heads(self) -> int:
        return self.kv_heads_of(WINDOWED)

    def kv_heads_of(self, kind: str) -> int:
        """kind: of layers; where there are none of it, the other's."""
        counts = self.keys.counts_of_layers(KEYS, self.num_layers)
        found = {count for count, own in zip(counts, self.kinds, strict=True) if own == kind} or {*counts}
        if len(found) != 1 or not 1 <= min(found) <= self.heads:
            raise self.keys.wrong(KEYS, "the same number in all layers of a kind, at least 1")
        return found.pop()

    @property
    def shared(self) -> int:
        """Layers at the end that read the keys and values of earlier ones."""
        return self.keys.count("attention.shared_kv_layers", self.num_layers - 1)

    def inner_sizes(self) -> list[int]:
        return self.keys.counts_of_layers("feed_forward_length", self.num_layers)

    def inner_size(self) -> int:
        return self.inner_sizes()[0]

    @property
    def is_double_wide(self) -> bool:
        """Whether the MLPs of the layers that share keys are twice as wide as the others."""
        sizes, own = self.inner_sizes(), self.num_layers - self.shared
        doubled = [sizes[0] * (1 if layer < own else 2) for layer in range(self.num_layers)]
        if sizes not in (doubled, [sizes[0]] * self.num_layers):
            raise self.keys.wrong(
                "feed_forward_length", "the same in all layers, or twice as much in those of attention.shared_kv_layers"
            )
        return self.shared > 0 and sizes == doubled

    def own_config(self) -> dict[str, Any]:
        size = self.keys.count("embedding_length_per_layer_input", MAX_TOKEN_SIZE)
        table = self.file.tensors.get(TOKEN_TABLE)
        return {
            "hidden_activation": ACTIVATION,
            "sliding_window": self.keys.whole("attention.sliding_window"),
            "layer_types": self.kinds,
            "global_head_dim": self.whole_head_dim,
            **self.keys_config(),
            "num_kv_shared_layers": self.shared,
            "use_double_wide_mlp": self.is_double_wide,
            "hidden_size_per_layer_input": size,
            "vocab_size_per_layer_input": table.info.shape[0] if table and size else None,
            "final_logit_softcapping": self.cap("final_logit_softcapping"),
            "attention_bias": self.some_layer_has("attn_q.bias"),
            **self.experts_config(),
        }

    def keys_config(self) -> dict[str, Any]:
        """In layers without a window values may be the keys: files have no `attn_v` there then."""
        whole = [layer for layer, kind in enumerate(self.kinds[: self.num_layers - self.shared]) if kind == WHOLE]
        alike = any(not self.has(f"blk.{layer}.attn_v.weight") for layer in whole)
        heads, others = self.kv_heads_of(WHOLE), self.kv_heads_of(WINDOWED)
        if heads != others and not alike:
            raise self.keys.wrong(KEYS, "the same number in all layers, since all have values of their own")
        return {"attention_k_eq_v": alike, "num_global_key_value_heads": heads if alike else None}

    def experts_config(self) -> dict[str, Any]:
        if not self.num_experts:
            return {}
        return {
            "enable_moe_block": True,
            "num_experts": self.num_experts,
            "top_k_experts": self.keys.whole("expert_used_count"),
            "moe_intermediate_size": self.keys.whole("expert_feed_forward_length"),
        }

    def rotation(self) -> dict[str, Any]:
        """Layers with a window rotate all of a head, the others a part, which `rope_freqs` tells."""
        whole = self.whole_head_dim
        if self.keys.whole("rope.dimension_count", whole) != whole:
            raise self.keys.wrong("rope.dimension_count", f"as attention.key_length, {whole}")
        return {
            WHOLE: {
                "rope_type": "proportional",
                "rope_theta": self.keys.number("rope.freq_base", self.theta),
                "partial_rotary_factor": share_of(self.rotated(), whole),
            },
            WINDOWED: {"rope_type": "default", "rope_theta": self.keys.number("rope.freq_base_swa", 10_000.0)},
        }

    def rotated(self) -> int:
        """Numbers of a head."""
        whole = self.whole_head_dim
        if not self.has(FREQUENCIES):
            raise broken(self.file.file, f"tensor {FREQUENCIES} is missing: it says which part of a head is rotated")
        factors = numbers(self.file, FREQUENCIES)
        moving = sum(factor == 1.0 for factor in factors)
        expected = [1.0] * moving + [STANDS_STILL] * (whole // 2 - moving)
        if not moving or [min(factor, STANDS_STILL) for factor in factors] != expected:
            raise broken(
                self.file.file,
                f"tensor {FREQUENCIES} must be ones and then, for what is not rotated, 1e30: {whole // 2} numbers",
            )
        return 2 * moving

    def others(self, tensor: str) -> Iterator[tuple[str, Part]]:
        stem, _, kind = tensor.rpartition(".")
        if stem in OF_TOKENS:
            yield f"{OF_TOKENS[stem]}.{kind}", Part(tensor)
        else:
            yield from super().others(tensor)

    def parts_of(self, tensor: str) -> Iterator[tuple[str, Part]]:
        first, _, rest = tensor.partition(".")
        layer, _, inner = rest.partition(".")
        if first == "blk" and inner in VECTORS:
            yield f"model.layers.{layer}.{VECTORS[inner]}", Part(tensor)
        else:
            yield from super().parts_of(tensor)

    def of_layer(self, inner: str, tensor: str) -> Iterator[tuple[str, Part]]:
        if inner in OF_LAYERS:
            yield OF_LAYERS[inner], Part(tensor)
        else:
            yield from super().of_layer(inner, tensor)
