"""Draws the engine under test: kernels, attention, plugins, and the sizes that cut requests up."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

from fuzz.drawing.speculation import draw_speculation
from fuzz.plans import EnginePlan
from fuzz.weights import NOT_FINITE
from specserve_workbench.testing.toy_tokenizer import VOCAB_SIZE

if TYPE_CHECKING:
    import random

    from fuzz.plans import ModelPlan

X86_SETS = ("avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx", "portable")
ARM_SETS = ("neon", "neon_dot", "neon_i8mm", "neon_bf16", "portable")
INSTRUCTION_SETS = ARM_SETS if platform.machine() in ("aarch64", "arm64") else X86_SETS
"""Where the processor lacks one, the fastest that it has is taken in its place."""


def draw_engine(rng: random.Random, model: ModelPlan, mode: str) -> EnginePlan:
    native = model.dtype != "float16" and rng.random() < (0.95 if model.is_demo else 0.7)
    fields: dict[str, Any] = {"seed": rng.randrange(1 << 30), "front": "async" if rng.random() < 0.2 else "sync"}
    fields |= draw_arithmetic(rng, native) | draw_lengths(rng, model) | draw_sizes(rng)
    fields |= draw_speculation(rng, model) | draw_parts(rng) | draw_graphs(rng, fields["budget"])
    if not native and fields["threads"] > 1:  # torch's threads on a busy core are slow
        fields["max_model_len"] = rng.choice((24, 33, 48))
    if mode == "pressure":
        fields |= {"room": rng.choice((1.0, 1.1, 1.5)), "max_num_seqs": rng.choice((5, 16, 24))}
        fields["block_size"] = rng.choice((1, 2, 4, 8, 16))
    if mode in ("turns", "choices"):
        fields |= {
            "prefix_cache": True,
            "block_size": rng.choice((1, 2, 4, 8, 16)),
            "room": rng.choice((1.3, 2.0, 4.0)),
        }
    if native and model.weights not in NOT_FINITE and rng.random() < 0.4:
        fields["cpu_weights"] = rng.choice(("int8", "int8-g64", "int4"))
        fields["cpu_activations"] = rng.choice(("auto", "int8", "float"))
    if native and is_paged_everywhere(fields, model) and rng.random() < 0.3:
        fields["cpu_kv"] = "int8"
    fields["grammar"] = has_tokens_of_its_text(model) and rng.random() < 0.3
    return EnginePlan(**fields)


def has_tokens_of_its_text(model: ModelPlan) -> bool:
    """The vocabulary has all tokens of the tokenizer, an end of text among them."""
    return model.is_demo or (model.eos is None and model.config["vocab_size"] >= VOCAB_SIZE)


def is_paged_everywhere(fields: dict[str, Any], model: ModelPlan) -> bool:
    """Whether cpu_paged serves all phases."""
    backends = {fields["attention"], *(fields.get("hybrid") or {}).values()}
    return "sdpa" not in backends and (model.dtype == "float32" or model.config.get("head_dim", 32) % 2 == 0)


def draw_arithmetic(rng: random.Random, native: bool) -> dict[str, Any]:
    """What bits depend on."""
    if not native:
        fields: dict[str, Any] = {"kernels": "torch", "threads": 1 if rng.random() < 0.92 else 2}
        backends: tuple[str, ...] = ("auto", "sdpa")
    else:
        fields = {"kernels": "cpu", "threads": rng.choice((1, 1, 1, 2, 2, 3))}
        fields["instruction_set"] = "auto"
        if rng.random() >= 0.4:
            fields["instruction_set"] = rng.choice(rng.choice((INSTRUCTION_SETS[:-1], INSTRUCTION_SETS)))
        fields["attention"] = "sdpa" if rng.random() < 0.15 else "auto"
        backends = ("auto", "sdpa", "cpu_paged")
    if rng.random() < 0.35:
        choices = {"prefill": rng.choice(backends), "decode": rng.choice(backends)}
        fields |= {"attention": "auto", "hybrid": choices | {"verify": rng.choice((*backends, "prefill", "decode"))}}
    return fields


def draw_sizes(rng: random.Random) -> dict[str, Any]:
    return {
        "block_size": rng.choice((1, 2, 4, 8, 16, 16, 32, 64)),
        "budget": rng.choice((1, 2, 3, 5, 8, 17, 33, 64, 100, 256, 600)),
        "chunked_prefill": rng.random() < 0.75,
        "prefix_cache": rng.random() < 0.75,
        "max_num_seqs": rng.choice((1, 2, 3, 5, 8, 16, 24)),
        "max_draft_tokens": rng.choice((0, 1, 2, 4, 8, 16, 32, 32, 64, 200)),
        "room": rng.choice((1.0, 1.0, 1.1, 1.3, 2.0, 4.0, 20.0)),
        "max_loaded": rng.choice((4, 4, 2, 1)),
        "fault_limit": rng.choice((1, 5, 1 << 30)),
    }


def draw_lengths(rng: random.Random, model: ModelPlan) -> dict[str, Any]:
    if model.is_demo:
        return {"max_model_len": rng.choice((64, 200, 300))}
    if rng.random() < 0.25:
        longest = model.config["max_position_embeddings"]
        return {"max_model_len": min(longest, rng.choice((200, 256, 300, 520, 700, 1200)))}
    return {"max_model_len": rng.choice((24, 33, 48, 64, 65, 70, 100, 127, 128))}


def draw_graphs(rng: random.Random, budget: int) -> dict[str, Any]:
    """Half of the engines have graphs; some have few buckets, which leave large steps without one."""
    fields: dict[str, Any] = {"graphs": rng.choice(("none", "none", "piecewise", "full"))}
    if rng.random() < 0.5:
        sizes = sorted(rng.sample(range(1, budget + 1), min(budget, rng.randint(1, 4))))
        fields["buckets"] = tuple(sizes)
    return fields


ADAPTIVE: tuple[dict[str, Any], ...] = (
    {}, {}, {"objective": "throughput"}, {"objective": "latency"}, {"mode": "static", "tokens": 1},
    {"mode": "tiers", "candidates": [0, 1], "warm_up": 1, "interval": 1},
)  # fmt: skip
"""Of the adaptive plugin."""


def draw_parts(rng: random.Random) -> dict[str, Any]:
    """Parts of the fuzzer's own beside its drafters."""
    processor = rng.choice((None, None, None, "apply", "edit"))
    parts = ("planner", "observer", *(["processor"] if processor else ()))
    return {
        "planner": rng.choice(("own", "own", "all", "all", "chaos", "chaos", "adaptive", "adaptive")),
        "adaptive": rng.choice(ADAPTIVE),
        "processor": processor,
        "faulty": tuple(part for part in parts if rng.random() < 0.15),
    }
