"""Phi-3 and Phi-4(-mini): Abdin et al., 2024."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.models.family import ModelFamily, StoredAs
from specserve.models.windows import window_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson
    from specserve.models.config import ModelConfig


class Phi3(ModelFamily):
    """A Llama whose files have the matrices of queries, keys and values as one, and those of the MLP's inputs."""

    name = "phi3"
    architectures = ("Phi3ForCausalLM",)
    rotates_parts = True
    absent: Mapping[str, object] = {"sliding_window": None, "rms_norm_eps": 1e-5}
    toy: Mapping[str, object] = {"pad_token_id": 0}  # transformers' default is beyond a small vocabulary

    def sliding_windows(self, raw: RawJson, num_layers: int, where: str) -> tuple[int | None, ...]:
        return (window_of(raw, where),) * num_layers

    def check(self, raw: RawJson, where: str) -> None:
        """All layers have the window that the file gives."""

    def stored_as(self, config: ModelConfig) -> Mapping[str, StoredAs]:
        queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        inner, found = config.intermediate_size, {}
        for layer in range(config.num_layers):
            attention, mlp = f"model.layers.{layer}.self_attn", f"model.layers.{layer}.mlp"
            found[f"{attention}.q_proj"] = StoredAs(f"{attention}.qkv_proj", 0, queries)
            found[f"{attention}.k_proj"] = StoredAs(f"{attention}.qkv_proj", queries, keys)
            found[f"{attention}.v_proj"] = StoredAs(f"{attention}.qkv_proj", queries + keys, keys)
            found[f"{mlp}.gate_proj"] = StoredAs(f"{mlp}.gate_up_proj", 0, inner)
            found[f"{mlp}.up_proj"] = StoredAs(f"{mlp}.gate_up_proj", inner, inner)
        return found
