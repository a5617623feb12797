"""Gemma 3, text: Gemma Team, 2025."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from specserve.models.config import Multipliers
from specserve.models.family import LayerTraits, ModelFamily, positive
from specserve.models.kinds_of_layers import kinds, main_rotation, rotations, windows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson

CAP = "final_logit_softcapping"
SCORE_CAP = "attn_logit_softcapping"
BASES = {"full_attention": ("rope_theta", 1_000_000.0), "sliding_attention": ("rope_local_base_freq", 10_000.0)}


class Gemma3(ModelFamily):
    """Norms around attention and the MLP, whose weights are stored less one; five of six layers have a window and a
    rotation of their own."""

    name = "gemma3_text"
    architectures = ("Gemma3ForCausalLM",)
    within: tuple[str, ...] = ("Gemma3ForConditionalGeneration",)
    activation_key = "hidden_activation"
    activations = ("gelu_pytorch_tanh",)
    reads: tuple[str, ...] = (
        "hidden_activation",
        "query_pre_attn_scalar",
        CAP,
        SCORE_CAP,
        "rope_local_base_freq",
        "sliding_window_pattern",
        "_sliding_window_pattern",
    )
    absent: Mapping[str, object] = {
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "sliding_window_pattern": 6,
        "tie_word_embeddings": True,
    }
    toy: Mapping[str, object] = {
        "sliding_window": 40,
        "layer_types": ["sliding_attention", "full_attention"],
        "query_pre_attn_scalar": 20,
    }

    def traits(self, raw: RawJson) -> LayerTraits:
        biased = raw.get("attention_bias", False)
        return LayerTraits(
            qkv_bias=biased,
            o_bias=biased,
            qk_norm=True,
            norm_places="around",
            wide_norms=True,
            norm_offset=1.0,
            activation="gelu_tanh",
            multipliers=Multipliers(
                embedding=math.sqrt(positive(raw, "hidden_size")),
                attention=1 / math.sqrt(positive(raw, "query_pre_attn_scalar")),
                logit_cap=None if raw.get(CAP) is None else positive(raw, CAP),
                score_cap=None if raw.get(SCORE_CAP) is None else positive(raw, SCORE_CAP),
            ),
        )

    def sliding_windows(self, raw: RawJson, num_layers: int, where: str) -> tuple[int | None, ...]:
        return windows(raw, self.kinds(raw, num_layers, where), where)

    def main_rotation(self, raw: RawJson) -> RawJson:
        return main_rotation(raw, BASES)

    def rotations(self, raw: RawJson, num_layers: int, where: str) -> tuple[RawJson | None, ...]:
        return rotations(raw, self.kinds(raw, num_layers, where), BASES, where)

    def kinds(self, raw: RawJson, num_layers: int, where: str) -> list[str]:
        return kinds(raw, num_layers, raw["sliding_window_pattern"], where)

    def check(self, raw: RawJson, where: str) -> None:
        """`kinds` and `windows` have checked what the file says of windows."""
