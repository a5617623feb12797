"""LFM3: Liquid AI, 2026."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.models.families.lfm2 import CONV, MLP_NAMES, Lfm2
from specserve.models.family import LayerTraits
from specserve.models.kinds_of_layers import FULL, kinds_beside, main_rotation, rotation_of, windows
from specserve.models.windows import SLIDING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson
    from specserve.models.config import ModelConfig

BASES = {FULL: (None, 1_000_000.0), SLIDING: (None, 10_000.0)}
ABSENT_ROTATIONS = {
    FULL: {"rope_type": "proportional", "rope_theta": 1_000_000.0, "partial_rotary_factor": 0.5},
    SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
}
"""Where the file has no `rope_parameters`."""


class Lfm3(Lfm2):
    """An LFM2 with norms around its blocks, gates of attention's heads, windows in some layers, and a rotation for each
    kind of attention."""

    name = "lfm3"
    architectures = ("Lfm3ForCausalLM",)
    reads = ("conv_L_cache", "conv_bias", "norm_eps", "use_attention_gate", "use_sandwich_norm")
    absent: Mapping[str, object] = {
        "num_key_value_heads": 4,
        "head_dim": 128,
        "tie_word_embeddings": True,
        "conv_L_cache": 7,
        "conv_bias": False,
        "sliding_window": 256,
        "use_attention_gate": True,
        "use_sandwich_norm": True,
    }
    attention_names: Mapping[str, str] = {}
    toy: Mapping[str, object] = {
        "layer_types": [CONV, SLIDING],
        "sliding_window": 40,
        "pad_token_id": 0,
    }

    def renamed(self, raw: RawJson) -> RawJson:
        eps = raw.get("rms_norm_eps", raw.get("norm_eps", 1e-5))
        return raw | {"rms_norm_eps": eps, "rope_parameters": raw.get("rope_parameters") or ABSENT_ROTATIONS}

    def traits(self, raw: RawJson) -> LayerTraits:
        biased = raw.get("attention_bias", False)
        return LayerTraits(
            qkv_bias=biased,
            o_bias=biased,
            qk_norm=True,
            norm_places="around" if raw["use_sandwich_norm"] else "before",
            attention_gate="head" if raw["use_attention_gate"] else None,
        )

    def kinds(self, raw: RawJson, num_layers: int, where: str) -> list[str]:
        found = raw.get("layer_types")
        if found is None:
            others = {0: SLIDING, 2: FULL}
            found = [others.get(layer % 4, CONV) if layer else CONV for layer in range(num_layers)]
        return kinds_beside(CONV, (FULL, SLIDING), found, num_layers, where)

    def sliding_windows(self, raw: RawJson, num_layers: int, where: str) -> tuple[int | None, ...]:
        return windows(raw, self.kinds(raw, num_layers, where), where)

    def main_rotation(self, raw: RawJson) -> RawJson:
        return main_rotation(raw, BASES)

    def rotations(self, raw: RawJson, num_layers: int, where: str) -> tuple[RawJson | None, ...]:
        of_kind = {kind: rotation_of(raw, kind, BASES, where) for kind in BASES}
        return tuple(of_kind.get(kind) for kind in self.kinds(raw, num_layers, where))

    def check(self, raw: RawJson, where: str) -> None:
        """`kinds` and `windows` have checked what the file says of windows."""

    def names(self, config: ModelConfig) -> Mapping[str, str]:
        names = MLP_NAMES | {"input_layernorm": "operator_norm"}
        if config.norm_places == "before":
            return {**names, "post_attention_layernorm": "ffn_norm"}
        return names | {
            "post_attention_layernorm": "post_operator_norm",
            "pre_feedforward_layernorm": "ffn_norm",
            "post_feedforward_layernorm": "post_ffn_norm",
        }
