"""Draws the drafts of uno, which computes with the target, instead of another drafter or beside others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.plans import changed

if TYPE_CHECKING:
    import random

    from fuzz.plans import EnginePlan, ModelPlan

SHARE = 0.12
RECURRENT = ("qwen3_5_text", "qwen3_5_moe_text")
"""Families whose layers uno refuses."""
REPLACED = (("ngram",), ("noisy",), ())


def with_self_drafts(rng: random.Random, model: ModelPlan, engine: EnginePlan) -> EnginePlan:
    wanted, alone = rng.random() < SHARE, rng.random() < 0.5
    options = {"draft_tokens": rng.choice((1, 2, 4, 8, 33)), "mask_token_id": rng.choice((2, 5, 100))}
    if not wanted or model.family in RECURRENT or engine.ranks > 1 or engine.by_transformers:
        return engine
    others = () if alone and engine.drafters in REPLACED else engine.drafters
    return changed(engine, drafters=(*others, "uno"), uno=options)
