"""Granite 3 with experts: IBM, 2024."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.models.families.granite import Granite
from specserve.models.family import StoredAs
from specserve.models.layers_with_experts import READS, everywhere

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson
    from specserve.models.config import ModelConfig
    from specserve.models.experts_config import ExpertsConfig


class GraniteMoe(Granite):
    """A Granite with experts, whose files have a layer's as one stack of matrices."""

    name = "granitemoe"
    architectures = ("GraniteMoeForCausalLM",)
    reads: tuple[str, ...] = (*Granite.reads, *READS)
    absent: Mapping[str, object] = {**Granite.absent, "num_experts_per_tok": 2}
    toy: Mapping[str, object] = {**Granite.toy, "num_local_experts": 5}

    def experts(self, raw: RawJson, num_layers: int) -> ExpertsConfig:
        found = everywhere(raw, num_layers, default=8)
        return msgspec.structs.replace(found, scores="softmax of the chosen")

    def stored_as(self, config: ModelConfig) -> Mapping[str, StoredAs]:
        assert config.experts is not None, "every layer has experts"
        inner, found = config.experts.inner_size, {}
        for layer in range(config.num_layers):
            mlp, block = f"model.layers.{layer}.mlp", f"model.layers.{layer}.block_sparse_moe"
            found[f"{mlp}.gate"] = StoredAs(f"{block}.router.layer")
            for expert in range(config.experts.count):
                ours = f"{mlp}.experts.{expert}"
                found[f"{ours}.gate_proj"] = StoredAs(f"{block}.input_linear", 0, inner, of_stack=expert)
                found[f"{ours}.up_proj"] = StoredAs(f"{block}.input_linear", inner, inner, of_stack=expert)
                found[f"{ours}.down_proj"] = StoredAs(f"{block}.output_linear", of_stack=expert)
        return found
