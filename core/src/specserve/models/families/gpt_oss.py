"""gpt-oss: OpenAI, 2025."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.models.config import SwigluClamp
from specserve.models.family import LayerTraits, ModelFamily, StoredAs, positive
from specserve.models.kinds_of_layers import kinds, windows
from specserve.models.layers_with_experts import READS, everywhere

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson
    from specserve.models.config import ModelConfig
    from specserve.models.experts_config import ExpertsConfig

YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


class GptOss(ModelFamily):
    """Experts with biases and a clamped activation; attention with sinks and biases; every other layer has a window."""

    name = "gpt_oss"
    architectures = ("GptOssForCausalLM",)
    reads = (*READS, "swiglu_alpha", "swiglu_limit", "initial_context_length", "experts_per_token")
    absent: Mapping[str, object] = {
        "head_dim": 64,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "sliding_window": 128,
        "rope_theta": 150_000.0,
        "num_experts_per_tok": 4,
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
    }
    toy: Mapping[str, object] = {
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
        "sliding_window": 40,
        "rope_theta": 150_000.0,
        "rope_scaling": {**YARN, "original_max_position_embeddings": 64},
        "pad_token_id": 0,  # transformers' default is beyond a small vocabulary
    }

    def traits(self, raw: RawJson) -> LayerTraits:
        biased = raw.get("attention_bias", True)
        clamp = SwigluClamp(gain=positive(raw, "swiglu_alpha"), limit=positive(raw, "swiglu_limit"))
        return LayerTraits(
            qkv_bias=biased,
            o_bias=biased,
            mlp_bias=True,
            sinks=True,
            wide_norms=True,
            activation="clamped_swiglu",
            clamp=clamp,
        )

    def sliding_windows(self, raw: RawJson, num_layers: int, where: str) -> tuple[int | None, ...]:
        return windows(raw, kinds(raw, num_layers, 2, where), where)

    def main_rotation(self, raw: RawJson) -> RawJson:
        return raw if raw.get("rope_parameters") or raw.get("rope_scaling") else {**raw, "rope_scaling": YARN}

    def experts(self, raw: RawJson, num_layers: int) -> ExpertsConfig:
        found = everywhere(raw, num_layers, default=128)
        return msgspec.structs.replace(found, scores="softmax of the chosen", router_bias=True)

    def check(self, raw: RawJson, where: str) -> None:
        """`kinds` and `windows` have checked what the file says of windows."""

    def stored_as(self, config: ModelConfig) -> Mapping[str, StoredAs]:
        """A layer's experts are one tensor, gates and ups in turns. Weights of 16 bits are [in, out]; those of four
        bits, as the plugin quantised reads them, [out, in]."""
        assert config.experts is not None, "every layer has experts"
        across, found = config.quantization is None, {}
        for layer in range(config.num_layers):
            mlp = f"model.layers.{layer}.mlp"
            found[f"{mlp}.gate"] = StoredAs(f"{mlp}.router")
            for kind, suffix in ((".weight", ""), (".bias", "_bias")):
                gate_up, down = f"{mlp}.experts.gate_up_proj{suffix}", f"{mlp}.experts.down_proj{suffix}"
                turned = across and kind == ".weight"
                for each in range(config.experts.count):
                    ours = f"{mlp}.experts.{each}"
                    own = StoredAs(gate_up, every=2, of_stack=each, transposed=turned)
                    found[f"{ours}.gate_proj{kind}"] = own
                    found[f"{ours}.up_proj{kind}"] = own._replace(first_row=1)
                    found[f"{ours}.down_proj{kind}"] = StoredAs(down, of_stack=each, transposed=turned)
        return found
