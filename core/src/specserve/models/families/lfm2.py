"""LFM2 and LFM2.5, dense: Liquid AI, 2025."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import ModelError
from specserve.models.family import LayerTraits, ModelFamily, StoredAs
from specserve.models.kinds_of_layers import FULL, kinds_beside
from specserve.models.short_conv import ShortConvConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson
    from specserve.models.config import ModelConfig
    from specserve.models.mixer import MixerConfig

CONV = "conv"
MOST_TAPS = 64
MLP_NAMES = {"mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2"}


class Lfm2(ModelFamily):
    """A gated short convolution in place of attention in the layers that `layer_types` or `full_attn_idxs` says."""

    name = "lfm2"
    architectures = ("Lfm2ForCausalLM",)
    reads: tuple[str, ...] = (
        *("block_auto_adjust_ff_dim", "block_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of"),
        *("conv_L_cache", "conv_bias", "full_attn_idxs", "norm_eps", "tie_embedding"),
    )
    absent: Mapping[str, object] = {
        "norm_eps": 1e-5,
        "num_key_value_heads": 8,
        "rope_theta": 1_000_000.0,
        "tie_word_embeddings": True,
        "conv_L_cache": 3,
        "conv_bias": False,
        "block_auto_adjust_ff_dim": True,
        "block_ffn_dim_multiplier": 1.0,
        "block_multiple_of": 256,
    }
    toy: Mapping[str, object] = {"full_attn_idxs": [1], "block_multiple_of": 16, "norm_eps": 1e-5, "pad_token_id": 0}

    attention_names: Mapping[str, str] = {
        "self_attn.q_norm": "self_attn.q_layernorm",
        "self_attn.k_norm": "self_attn.k_layernorm",
        "self_attn.o_proj": "self_attn.out_proj",
    }
    """Of layers with attention: our names of tensors, and the file's."""

    def renamed(self, raw: RawJson) -> RawJson:
        tied = raw.get("tie_embedding", raw["tie_word_embeddings"])
        return raw | {"rms_norm_eps": raw["norm_eps"], "tie_word_embeddings": tied} | self.inner_size(raw)

    def inner_size(self, raw: RawJson) -> RawJson:
        """The width of the MLP, where it is not the one that the file says."""
        inner = raw.get("block_ff_dim", raw.get("intermediate_size"))
        return {} if inner is None else {"intermediate_size": adjusted(inner, raw)}

    def traits(self, raw: RawJson) -> LayerTraits:
        return LayerTraits(qk_norm=True)

    def mixers(self, raw: RawJson, num_layers: int, where: str) -> tuple[MixerConfig | None, ...]:
        taps = raw["conv_L_cache"]
        if type(taps) is not int or not 1 <= taps <= MOST_TAPS:
            raise ModelError(f"{where}: conv_L_cache must be a number of tokens, 1 to {MOST_TAPS}; got {taps!r}.")
        conv = ShortConvConfig(taps=taps, biased=bool(raw["conv_bias"]))
        return tuple(conv if kind == CONV else None for kind in self.kinds(raw, num_layers, where))

    def kinds(self, raw: RawJson, num_layers: int, where: str) -> list[str]:
        """The kind of every layer."""
        found = raw.get("layer_types")
        if found is None:
            full = raw.get("full_attn_idxs")
            if not (full is None or isinstance(full, list)):
                raise ModelError(f"{where}: full_attn_idxs must be a list of layers; got {full!r}.")
            found = [FULL if full is None or layer in full else CONV for layer in range(num_layers)]
        return kinds_beside(CONV, (FULL,), found, num_layers, where)

    def check(self, raw: RawJson, where: str) -> None:
        if raw.get("sliding_window") is not None:
            raise ModelError(f"{where}: sliding_window must be null for {self.name}; got {raw['sliding_window']!r}.")

    def names(self, config: ModelConfig) -> Mapping[str, str]:
        """Of every layer's tensors: ours, and the file's."""
        return {**MLP_NAMES, "input_layernorm": "operator_norm", "post_attention_layernorm": "ffn_norm"}

    def stored_as(self, config: ModelConfig) -> Mapping[str, StoredAs]:
        found = {"model.norm": StoredAs("model.embedding_norm")}
        for layer in range(config.num_layers):
            prefix = f"model.layers.{layer}"
            names = {**self.names(config), **({} if config.mixer(layer) else self.attention_names)}
            found |= {f"{prefix}.{ours}": StoredAs(f"{prefix}.{theirs}") for ours, theirs in names.items()}
        return found


def adjusted(inner: object, raw: RawJson) -> object:
    """The width of the MLP: two thirds of what the file says, times a factor, up to the next multiple."""
    if not raw["block_auto_adjust_ff_dim"] or not isinstance(inner, int):
        return inner
    width = int(2 * inner / 3)
    if raw["block_ffn_dim_multiplier"] is None:
        return width
    multiple = raw["block_multiple_of"]
    return -(-int(raw["block_ffn_dim_multiplier"] * width) // multiple) * int(multiple)
