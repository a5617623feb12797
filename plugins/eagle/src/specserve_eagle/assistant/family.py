"""The layers of an assistant, as a family of decoders: those of Gemma 4, all of which read the target's keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.api import ModelError
from specserve.api.models import OF_TARGET, LayerAttention
from specserve.models.families.gemma4 import HEADS, KEY_HEADS, SHARED, TOKEN_SIZE, TOKEN_VOCAB, Gemma4, heads_by_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.api.files import RawJson
    from specserve.api.models import LayerTraits

WITHOUT = (TOKEN_SIZE, TOKEN_VOCAB, "enable_moe_block", "use_double_wide_mlp")
"""Of a target, and of no assistant."""


class AssistantLayers(Gemma4):
    """`text_config` of an assistant."""

    name = "gemma4_assistant"
    architectures = ("Gemma4AssistantForCausalLM",)
    within: tuple[str, ...] = ()
    absent: Mapping[str, object] = {**Gemma4.absent, TOKEN_SIZE: 0, TOKEN_VOCAB: 0}

    def traits(self, raw: RawJson) -> LayerTraits:
        """Its logits are not capped, whatever the file says."""
        traits = super().traits(raw)
        return traits._replace(multipliers=msgspec.structs.replace(traits.multipliers, logit_cap=None))

    def layer_attention(self, raw: RawJson, num_layers: int, where: str) -> tuple[LayerAttention, ...]:
        kinds = self.kinds(raw, num_layers, where)
        sizes = heads_by_kind(raw, kinds, where)
        return tuple(
            LayerAttention(num_kv_heads=sizes[kind][KEY_HEADS], head_dim=sizes[kind][HEADS], reads=OF_TARGET)
            for kind in kinds
        )

    def check(self, raw: RawJson, where: str) -> None:
        super().check(raw, where)
        if found := next((key for key in WITHOUT if raw.get(key)), None):
            raise ModelError(
                f"{where}: an assistant has no {found}; got text_config.{found} = {raw[found]!r}. Correct the file."
            )
        if raw.get(SHARED, 0) not in (0, raw["num_hidden_layers"]):
            raise ModelError(
                f"{where}: all layers of an assistant ({raw['num_hidden_layers']}) read the target's keys and values; "
                f"got text_config.{SHARED} = {raw[SHARED]!r}. Correct the file."
            )
