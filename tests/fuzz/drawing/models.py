"""Draws checkpoints of every family and head shape, small enough for many trials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuzz.drawing.positions import draw_rope, draw_windows
from fuzz.drawing.relatives import as_relative
from fuzz.plans import ModelPlan, changed
from fuzz.quantising import draw_form
from fuzz.weights import KINDS, NOT_FINITE
from specserve_workbench.testing.toy_tokenizer import EOS_ID

if TYPE_CHECKING:
    import random

FAMILIES = (
    *("llama", "mistral", "qwen2", "qwen3"),
    *("gemma2", "gemma3_text", "granite", "ministral", "ministral3", "olmo2", "olmo3", "phi3", "smollm3"),
    *("gpt_oss", "granitemoe", "mixtral", "olmoe", "qwen3_moe"),
    *("lfm2", "lfm2_moe", "lfm3", "qwen3_5_text"),
)
DTYPES = ("float32", "bfloat16", "float16")
MOST_HEAD_WIDTH = 640


def draw_model(rng: random.Random) -> ModelPlan:
    family = rng.choice(("llama", *FAMILIES))
    config = draw_sizes(rng)
    if family in ("llama", "qwen3") and rng.random() < 0.3:
        config["attention_bias"] = True
    if family == "llama" and rng.random() < 0.3:
        config["mlp_bias"] = True
    if family == "gemma2":
        config["attn_logit_softcapping"] = rng.choice((0.5, 4.0, 50.0, None))
    config |= draw_windows(rng, family, config["num_hidden_layers"])
    config |= draw_rope(rng, family, config["head_dim"], config["max_position_embeddings"])
    dtype = rng.choice(("float32", "float32", "bfloat16", "bfloat16", "float16"))
    plan = ModelPlan(
        family=family,
        seed=rng.randrange(1 << 30),
        dtype=dtype,
        stored=rng.choice(DTYPES) if rng.random() < 0.2 else dtype,
        weights="plain" if rng.random() < 0.3 else rng.choice(KINDS),
        config=config,
        eos=draw_eos(rng, config["vocab_size"]),
    )
    plan = as_relative(plan)
    finite = plan.weights not in NOT_FINITE
    return changed(plan, quantised=draw_form(plan.seed, plan.family, config)) if finite else plan


def draw_demo(rng: random.Random) -> ModelPlan:
    """The demo model, which says sensible things."""
    return ModelPlan(
        family="demo", seed=0, dtype=rng.choice(("float32", "bfloat16")), stored="bfloat16", weights="demo"
    )


def draw_sizes(rng: random.Random) -> dict[str, Any]:
    """MHA, GQA and MQA; heads and widths that fill no vector and no tile."""
    head_dim = rng.choice((2, 6, 16, 16, 20, 32, 32, 48, 64, 80, 128))
    num_kv_heads, group = rng.choice((1, 1, 2, 2, 3)), rng.choice((1, 1, 2, 2, 3, 4, 7, 17))
    while num_kv_heads * group * head_dim > MOST_HEAD_WIDTH:
        num_kv_heads, group = rng.choice((1, 1, 2, 2, 3)), rng.choice((1, 1, 2, 2, 3, 4, 5))
    sizes = {
        "vocab_size": rng.choice((300, 320, 320, 321, 327, 333, 352, 511, 1111)),
        "hidden_size": rng.choice((7, 16, 24, 33, 48, 64, 65, 96, 130)),
        "intermediate_size": rng.choice((13, 16, 16, 32, 48, 50, 64, 96, 160)),
        "num_hidden_layers": rng.choice((1, 1, 2, 2, 3)),
        "num_attention_heads": num_kv_heads * group,
        "num_key_value_heads": num_kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": rng.choice((128, 256, 640, 2048)),
        "tie_word_embeddings": rng.random() < 0.3,
    }
    if rng.random() < 0.04:  # other paths of the matrix kernels
        sizes |= {"hidden_size": rng.choice((256, 384, 500)), "intermediate_size": rng.choice((512, 1000))}
        sizes |= {"num_hidden_layers": 1, "vocab_size": rng.choice((320, 3000, 5003))}
    return sizes


def draw_eos(rng: random.Random, vocab_size: int) -> tuple[int, ...] | None:
    """Now and then several ends of text, none, or some that the vocabulary does not have."""
    if rng.random() < 0.8:
        return None
    return rng.choice(((), (5,), (EOS_ID, 7, 8), (EOS_ID, vocab_size + 180), (vocab_size,)))
