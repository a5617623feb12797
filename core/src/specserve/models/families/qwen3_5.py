"""Qwen3.5 and 3.6, text: Qwen Team, 2026."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import ModelError
from specserve.models.family import LayerTraits, ModelFamily
from specserve.models.gated_delta_net import GatedDeltaNetConfig
from specserve.models.kinds_of_layers import FULL, kinds_beside

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson
    from specserve.models.mixer import MixerConfig

LINEAR = "linear_attention"
SIZES = {
    "key_heads": "linear_num_key_heads",
    "value_heads": "linear_num_value_heads",
    "key_dim": "linear_key_head_dim",
    "value_dim": "linear_value_head_dim",
    "taps": "linear_conv_kernel_dim",
}
ONLY = {"attn_output_gate": True, "mamba_ssm_dtype": "float32"}


class Qwen35(ModelFamily):
    """Gated delta nets in three of four layers, and attention whose output has a gate for each number in the others;
    norms whose weights are stored less one; a quarter of each head is rotated."""

    name = "qwen3_5_text"
    architectures = ("Qwen3_5ForCausalLM",)
    within = ("Qwen3_5ForConditionalGeneration",)
    rotates_parts = True
    only: Mapping[str, object] = ONLY
    """What transformers computes whatever the file says."""
    reads: tuple[str, ...] = (*SIZES.values(), *ONLY, "full_attention_interval", "mtp_use_dedicated_embeddings")
    absent: Mapping[str, object] = {
        "num_key_value_heads": 4,
        "head_dim": 256,
        "partial_rotary_factor": 0.25,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    }
    toy: Mapping[str, object] = {
        "full_attention_interval": 2,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 8,
        "partial_rotary_factor": 0.25,
    }

    def traits(self, raw: RawJson) -> LayerTraits:
        biased = raw.get("attention_bias", False)
        return LayerTraits(
            qkv_bias=biased,
            o_bias=biased,
            qk_norm=True,
            wide_norms=True,
            norm_offset=1.0,
            attention_gate="number",
        )

    def mixers(self, raw: RawJson, num_layers: int, where: str) -> tuple[MixerConfig | None, ...]:
        for key in SIZES.values():
            if type(raw[key]) is not int or raw[key] < 1:
                raise ModelError(f"{where}: {key} must be a whole number, at least 1; got {raw[key]!r}.")
        sizes = {ours: raw[key] for ours, key in SIZES.items()}
        if sizes["value_heads"] % sizes["key_heads"]:
            raise ModelError(
                f"{where}: linear_num_value_heads ({sizes['value_heads']}) must be a multiple of linear_num_key_heads "
                f"({sizes['key_heads']})."
            )
        net = GatedDeltaNetConfig(**sizes, norm_eps=raw.get("rms_norm_eps", 1e-6))
        return tuple(None if kind == FULL else net for kind in kinds(raw, num_layers, where))

    def check(self, raw: RawJson, where: str) -> None:
        for key, value in self.only.items():
            if raw.get(key, value) != value:
                raise ModelError(f"{where}: {key} must be {value!r}; got {raw[key]!r}. Correct the file.")
        if raw.get("sliding_window") is not None:
            raise ModelError(f"{where}: sliding_window must be null for {self.name}; got {raw['sliding_window']!r}.")


def kinds(raw: RawJson, num_layers: int, where: str) -> list[str]:
    """The kind of every layer."""
    found = raw.get("layer_types")
    if found is None:
        every = raw["full_attention_interval"]
        if type(every) is not int or every < 1:
            raise ModelError(f"{where}: full_attention_interval must be a number of layers; got {every!r}.")
        found = [LINEAR if (layer + 1) % every else FULL for layer in range(num_layers)]
    return kinds_beside(LINEAR, (FULL,), found, num_layers, where)
