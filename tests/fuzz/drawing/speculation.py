"""Draws drafters, alone and together, every option of ngram, and the drafts of eagle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuzz.weights import NOT_FINITE

if TYPE_CHECKING:
    import random

    from fuzz.plans import ModelPlan

ALONE = (
    (("ngram",),) * 6 + (("noisy",),) * 4 + (("oracle",),) * 2 + (("repeat",), ("evil",), ("evil",)) + (("eagle",),) * 5
)
TOGETHER = (
    ("ngram", "repeat"),
    ("ngram", "noisy"),
    ("evil", "ngram"),
    ("oracle", "evil"),
    ("eagle", "ngram"),
    ("evil", "eagle"),
)
THREE = (("noisy", "repeat", "ngram"), ("ngram", "oracle", "repeat"), ("eagle", "noisy", "ngram"))
NO_DRAFT_MODELS = ("qwen3_5_moe_text", "gemma4_text")
HEADS = {3: "dspark", 5: "peagle"}
"""Kinds of heads of their own, for drafts of so many steps."""
TREE_HEADS = ("dspark",)
"""Those that draft trees, too."""
OWN = ("oracle", "noisy", "evil")
"""The fuzzer's drafters: they are told what each request will say."""


def draw_speculation(rng: random.Random, model: ModelPlan) -> dict[str, Any]:
    drafters = rng.choice((*ALONE, *TOGETHER, *THREE, ()))
    if model.family in NO_DRAFT_MODELS:
        drafters = tuple(name for name in drafters if name != "eagle")
    fields: dict[str, Any] = {
        "drafters": drafters,
        "repeat_width": rng.choice((1, 2, 5, 20)),
        "noisy_p": rng.choice((0.3, 0.7, 0.9, 1.0)),
        "corpus": rng.random() < 0.3,
        "ngram": draw_ngram(rng) if "ngram" in drafters else {},
        "eagle": draw_eagle(rng, model) if "eagle" in drafters else {},
    }
    head = HEADS.get(fields["eagle"].get("steps"), "")
    if fields["eagle"].get("topk") == 1 or head in TREE_HEADS:
        fields["head"] = head
    if set(OWN) & set(drafters) and not model.is_demo and rng.random() < 0.4:
        layers = model.config["num_hidden_layers"]
        wanted = rng.sample(range(-1, layers + 1), rng.randint(1, layers + 1))
        fields["hidden_layers"] = tuple(sorted(wanted))
    return fields


def draw_eagle(rng: random.Random, model: ModelPlan) -> dict[str, Any]:
    """Of the target as its own draft model, or of the block that drafts within it where it has recurrent layers."""
    steps, topk = rng.choice((1, 2, 3, 5, "auto")), rng.choice((1, 1, 1, 2, 4))
    weights = rng.choice(("auto", "auto", "int8"))
    return {"steps": steps, "topk": topk, "weights": "auto" if model.weights in NOT_FINITE else weights}


def draw_ngram(rng: random.Random) -> dict[str, Any]:
    shortest, longest = sorted((rng.choice((1, 1, 1, 2, 5)), rng.choice((1, 4, 12, 32))))
    narrow, wide = sorted((rng.choice((1, 1, 2, 4)), rng.choice((1, 3, 10, 32))))
    options: dict[str, Any] = {
        "match_type": rng.choice(("learned", "bfs", "prob")),
        "shared": rng.random() < 0.7,
        "min_match": shortest,
        "max_match": rng.choice((longest, 1024)),
        "min_breadth": narrow,
        "max_breadth": wide,
        "max_depth": rng.choice((1, 2, 8, 64, 256)),
        "min_survival": rng.choice((0.0, 0.0, 0.0, 0.05, 0.5)),
        "capacity": rng.choice((1000, 4_000_000)),
        "generations": rng.choice((2, 4, 7)),
    }
    if rng.random() < 0.2:
        options["max_draft_tokens"] = rng.choice((1, 3, 40))
    return options
