"""Gemma 2: Gemma Team, 2024."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.models.families.gemma3 import CAP, SCORE_CAP, Gemma3
from specserve.models.kinds_of_layers import kinds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson
    from specserve.models.family import LayerTraits

FULL_EVERY = 2


class Gemma2(Gemma3):
    """A Gemma 3 with capped scores, one rotation, a window in every other layer, and no norms of queries and keys."""

    name = "gemma2"
    architectures = ("Gemma2ForCausalLM",)
    within = ()
    reads = ("hidden_activation", "query_pre_attn_scalar", CAP, SCORE_CAP)
    absent: Mapping[str, object] = {
        "num_key_value_heads": 4,
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "tie_word_embeddings": True,
        CAP: 30.0,
        SCORE_CAP: 50.0,
    }
    toy: Mapping[str, object] = {
        "sliding_window": 40,
        "layer_types": ["sliding_attention", "full_attention"],
        "query_pre_attn_scalar": 20,
        SCORE_CAP: 0.7,
    }

    def traits(self, raw: RawJson) -> LayerTraits:
        return super().traits(raw)._replace(qk_norm=False)

    def main_rotation(self, raw: RawJson) -> RawJson:
        return raw

    def rotations(self, raw: RawJson, num_layers: int, where: str) -> tuple[RawJson | None, ...]:
        return ()

    def kinds(self, raw: RawJson, num_layers: int, where: str) -> list[str]:
        return kinds(raw, num_layers, FULL_EVERY, where)
