"""Greedy answers in float32 held against transformers: equal as far as rounding lets one tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fuzz.failures import Failure
from specserve.types import SamplingParams

if TYPE_CHECKING:
    from fuzz.plans import ModelPlan, RequestPlan
    from fuzz.results import Result
    from fuzz.trial import Trial

MOST_REQUESTS = 3
GAP, LOGPROB_GAP = 2e-4, 1e-3
"""Relative to the largest logit."""
LATE_ROPES = ("dynamic", "longrope")
"""transformers chooses their frequencies by the length of the whole text, and computes all positions with them."""
COMPARABLE_WEIGHTS = ("plain", "peaked", "sticky")
GREEDY_BELOW = 1e-5
ENDINGS = ("max_tokens", "ignore_eos", "stop", "stop_token_ids", "include_stop_str_in_output", "skip_special_tokens")
SILENT = ("temperature", "seed", "logprobs", "prompt_logprobs", "top_k", "top_p", "min_p")
"""Fields that do not change a greedy token."""


def is_comparable(model: ModelPlan, processor: str | None) -> bool:
    rope = (model.config.get("rope_scaling") or {}).get("rope_type", "default")
    plain = model.dtype == "float32" and model.weights in COMPARABLE_WEIGHTS and processor is None
    plain &= model.quantised is None
    return plain and rope not in LATE_ROPES


def is_greedy(request: RequestPlan) -> bool:
    """Does nothing but the logits decide its tokens?"""
    params, neutral = request.params, SamplingParams()
    others = [name for name in params.__struct_fields__ if name not in ENDINGS + SILENT]
    unchanged = all(getattr(params, name) == getattr(neutral, name) for name in others)
    return params.temperature < GREEDY_BELOW and unchanged and request.adapter is None


def compare_with_transformers(trial: Trial) -> int:
    """How many requests were compared."""
    answered = [each for each in trial.served.last.values() if is_greedy(each.request)][:MOST_REQUESTS]
    engine = trial.plan.engine
    exact = engine.cpu_weights == engine.cpu_kv == "auto"
    if not answered or not exact or not is_comparable(trial.plan.model, engine.processor):
        return 0
    model = load(trial.files.model)
    if model is None:
        return 0
    for request, _, result in answered:
        compare(model, request, result)
    return len(answered)


def load(path: object) -> Any:
    """None where transformers refuses sizes that are served here."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    plain = {"attn_implementation": "eager", "experts_implementation": "eager"}  # grouped products refuse odd sizes
    try:
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **plain).eval()
    except Exception:  # of many types; coverage says whether any model could be loaded
        return None


@torch.inference_mode()
def compare(model: Any, request: RequestPlan, result: Result) -> None:
    tokens = [*request.prompt, *result.tokens]
    logits = model(torch.tensor([tokens])).logits[0].double()
    logprobs = torch.log_softmax(logits, -1)
    for i, token in enumerate(result.tokens):
        row = len(request.prompt) - 1 + i
        scale = max(1.0, float(logits[row].abs().max()))
        gap = float(logits[row].max() - logits[row, token])
        if gap > GAP * scale:
            raise Failure("transformers says another token", f"{request.id}: token {i} is {gap} below its best")
        if result.logprobs:
            got, right = result.logprobs[i].logprob, float(logprobs[row, token])
            if abs(got - right) > LOGPROB_GAP * scale:
                raise Failure("transformers says another logprob", f"{request.id}, token {i}: {right}; got {got}")
