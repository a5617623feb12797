"""Granite 3 with experts and a shared one: IBM, 2025."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.models.families.granitemoe import GraniteMoe
from specserve.models.family import StoredAs
from specserve.models.layers_with_experts import whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson
    from specserve.models.config import ModelConfig
    from specserve.models.experts_config import ExpertsConfig

WIDTH = "shared_intermediate_size"


class GraniteMoeShared(GraniteMoe):
    """A Granite with experts beside a shared one, or without it where its width is 0."""

    name = "granitemoeshared"
    architectures = ("GraniteMoeSharedForCausalLM",)
    reads = (*GraniteMoe.reads, WIDTH)
    absent: Mapping[str, object] = {**GraniteMoe.absent, WIDTH: 0}
    toy: Mapping[str, object] = {**GraniteMoe.toy, WIDTH: 56}

    def experts(self, raw: RawJson, num_layers: int) -> ExpertsConfig:
        found = super().experts(raw, num_layers)
        return found if raw[WIDTH] == 0 else msgspec.structs.replace(found, shared_size=whole_number(raw, WIDTH))

    def stored_as(self, config: ModelConfig) -> Mapping[str, StoredAs]:
        found, inner = dict(super().stored_as(config)), config.experts.shared_size if config.experts else None
        for layer in range(0 if inner is None else config.num_layers):
            ours, theirs = f"model.layers.{layer}.mlp.shared_expert", f"model.layers.{layer}.shared_mlp"
            found[f"{ours}.gate_proj"] = StoredAs(f"{theirs}.input_linear", 0, inner)
            found[f"{ours}.up_proj"] = StoredAs(f"{theirs}.input_linear", inner or 0, inner)
            found[f"{ours}.down_proj"] = StoredAs(f"{theirs}.output_linear")
        return found
