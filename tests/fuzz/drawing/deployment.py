"""Draws how an engine is deployed: what it publishes of its cache, on how many ranks it runs, and who computes layers.

Few run on two ranks: each of their engines starts a process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuzz.plans import changed

if TYPE_CHECKING:
    import random

    from fuzz.plans import EnginePlan, ModelPlan

PUBLISHING, TWO_RANKS, BY_TRANSFORMERS = 0.3, 0.03, 0.12
NOT_BY_TRANSFORMERS = (
    "gpt_oss",
    "phi3",
    "granitemoe",
    "mixtral",
    "olmoe",
    "qwen3_moe",
    "lfm2",
    "lfm2_moe",
    "lfm3",
    "qwen3_5_text",
    "qwen3_5_moe_text",
    "qwen2_moe",
    "granitemoeshared",
    "glm4_moe",
    "gemma4_text",
    "mimo",
)
"""transformers refuses Phi-3's factors for a part; its classes have no modules for single experts, which drawn
adapters name; its convolutions and recurrent layers keep their states themselves; and it has no MiMo."""
NOT_DIVIDED = ("olmo2", "olmo3", "olmoe", "lfm2", "lfm2_moe", "lfm3", "qwen3_5_text", "qwen3_5_moe_text", "gemma4_text")
"""Families that ranks cannot divide: one norm is of all heads, layers have no heads, or heads of several sizes."""


def deployed(rng: random.Random, model: ModelPlan, engine: EnginePlan) -> EnginePlan:
    if rng.random() < PUBLISHING:
        engine = changed(engine, kv_events={"encoding": rng.choice(("map", "array"))})
    if rng.random() < TWO_RANKS and may_be_divided(model, engine):
        engine = changed(engine, ranks=2, graphs="none")  # no graph is recorded of steps that ranks divide
    if rng.random() < BY_TRANSFORMERS and may_be_computed_by_transformers(model, engine):
        engine = changed(engine, by_transformers=True)
    return engine


def may_be_computed_by_transformers(model: ModelPlan, engine: EnginePlan) -> bool:
    """transformers refuses widths that heads do not divide."""
    if engine.ranks > 1 or model.family in NOT_BY_TRANSFORMERS:
        return False
    return model.is_demo or model.config["hidden_size"] % model.config["num_attention_heads"] == 0


def may_be_divided(model: ModelPlan, engine: EnginePlan) -> bool:
    """Whether each of two ranks has as many heads, and no group of quantised weights is cut. A draft model is rank 0's
    alone, and the sizes of caches here are those of engines whose ranks have the same."""
    if model.is_demo or model.quantised or model.family in NOT_DIVIDED or "eagle" in engine.drafters:
        return False
    config: dict[str, Any] = model.config
    keys = config["num_key_value_heads"]
    return config["num_attention_heads"] % 2 == 0 and (keys == 1 or keys % 2 == 0)
