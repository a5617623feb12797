"""Draws families that share the sizes of another one: the same plan for a relative, with keys of its own.

Numbers come from a generator of their own: other plans are what they were without the relatives.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from fuzz.plans import changed

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuzz.plans import ModelPlan

    Draw = Callable[[random.Random, dict[str, Any]], dict[str, Any]]
    """Of the relative's config.json, from the family's."""

SHARE = 0.5
SLIDING, FULL = "sliding_attention", "full_attention"


def as_relative(plan: ModelPlan) -> ModelPlan:
    """Half of the plans whose family has a relative become its."""
    rng = random.Random(f"relative {plan.seed}")
    if plan.family not in RELATIVES or rng.random() >= SHARE:
        return plan
    name, draw = RELATIVES[plan.family]
    return changed(plan, family=name, config=draw(rng, plan.config))


def the_same(_: random.Random, config: dict[str, Any]) -> dict[str, Any]:
    """The toy of the relative says what else it has."""
    return config


def glm4_moe(rng: random.Random, config: dict[str, Any]) -> dict[str, Any]:
    """All layers have experts behind a number of plain ones; a part of each head is rotated."""
    parts = [part for part in (0.25, 0.5) if config["head_dim"] * part % 2 == 0]
    plain = "rope_scaling" not in config
    return config | {
        "partial_rotary_factor": rng.choice((*parts, 1.0)) if plain else 1.0,
        "n_routed_experts": rng.choice((2, 5, 6, 9)),
        "n_shared_experts": rng.choice((1, 1, 2)),
        "moe_intermediate_size": rng.choice((7, 13, 16, 48)),
        "first_k_dense_replace": rng.randrange(config["num_hidden_layers"] + 1),
        "norm_topk_prob": rng.random() < 0.8,
        "use_qk_norm": rng.random() < 0.5,
        "attention_bias": rng.random() < 0.5,
    }


def gemma4(rng: random.Random, config: dict[str, Any]) -> dict[str, Any]:
    """Heads by the kind of layer, keys and values of earlier layers, vectors of tokens in all layers, experts beside
    the MLP."""
    dropped = ("rope_scaling", "rope_theta", "partial_rotary_factor")
    kept = {key: value for key, value in config.items() if key not in dropped}
    kinds = [*config["layer_types"][:-1], FULL]
    sharing = [count for count in range(len(kinds)) if {*kinds[len(kinds) - count :]} <= {*kinds[: len(kinds) - count]}]
    keys = config["num_key_value_heads"]
    whole_head = rng.choice((config["head_dim"], 2 * config["head_dim"], 4, 18))
    parts = [part for part in (0.25, 0.5) if whole_head * part % 2 == 0]
    drawn: dict[str, Any] = {
        "layer_types": kinds,
        "global_head_dim": whole_head,
        "hidden_size_per_layer_input": rng.choice((0, 5, 24)),
        "vocab_size_per_layer_input": config["vocab_size"] + rng.choice((0, 7)),
        "num_kv_shared_layers": rng.choice(sharing),
        "use_double_wide_mlp": rng.random() < 0.3,
        "final_logit_softcapping": rng.choice((None, 3.0, 30.0)),
        "rope_parameters": {
            FULL: {
                "rope_type": "proportional",
                "rope_theta": 5e5,
                "partial_rotary_factor": rng.choice((*parts, 1.0)),
            },
            SLIDING: {"rope_type": "default", "rope_theta": 100.0},
        },
    }
    if rng.random() < 0.3:
        drawn |= {"attention_k_eq_v": True, "num_global_key_value_heads": rng.choice((1, keys))}
    if rng.random() < 0.3:
        drawn |= {"enable_moe_block": True, "num_experts": 5, "top_k_experts": 2, "moe_intermediate_size": 13}
    return kept | drawn


RELATIVES: dict[str, tuple[str, Draw]] = {
    "granitemoe": ("granitemoeshared", the_same),
    "qwen3_moe": ("qwen2_moe", the_same),
    "qwen3_5_text": ("qwen3_5_moe_text", the_same),
    "qwen2": ("mimo", the_same),
    "olmoe": ("glm4_moe", glm4_moe),
    "gemma3_text": ("gemma4_text", gemma4),
}
