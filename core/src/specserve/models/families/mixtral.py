"""Mixtral: Jiang et al., 2024."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.models.families.mistral import Mistral
from specserve.models.family import StoredAs
from specserve.models.layers_with_experts import READS, everywhere

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson
    from specserve.models.config import ModelConfig
    from specserve.models.experts_config import ExpertsConfig

MATRICES = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}


class Mixtral(Mistral):
    """A Mistral whose MLPs are mixtures of experts."""

    name = "mixtral"
    architectures = ("MixtralForCausalLM",)
    absent: Mapping[str, object] = {
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "sliding_window": None,
        "rope_theta": 1e6,
        "num_experts_per_tok": 2,
    }
    reads = READS
    toy: Mapping[str, object] = {"num_local_experts": 4}

    def experts(self, raw: RawJson, num_layers: int) -> ExpertsConfig:
        found = everywhere(raw, num_layers, default=8)
        return msgspec.structs.replace(found, renormalised=True, rounded=False)

    def stored_as(self, config: ModelConfig) -> Mapping[str, StoredAs]:
        assert config.experts is not None, "every layer has experts"
        found = {}
        for layer in range(config.num_layers):
            mlp, block = f"model.layers.{layer}.mlp", f"model.layers.{layer}.block_sparse_moe"
            found[f"{mlp}.gate"] = StoredAs(f"{block}.gate")
            for expert in range(config.experts.count):
                for ours, theirs in MATRICES.items():
                    found[f"{mlp}.experts.{expert}.{ours}"] = StoredAs(f"{block}.experts.{expert}.{theirs}")
        return found
