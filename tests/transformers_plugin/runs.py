"""Engines on models of transformers, and transformers' own text to compare with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM

from specserve_workbench.testing.engines import run
from specserve_workbench.testing.requests import toy_request

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.types import GenerateRequest
    from specserve_workbench.testing.engines import Run

ALL = {"transformers": {"architectures": "all"}}
PROMPTS = {f"r{size}": [(13 * i) % 300 + 3 for i in range(size)] for size in (3, 20, 70)}


def options_of(kernels: str = "cpu", *plugins: str, **tables: Any) -> dict[str, Any]:
    return {
        "plugins": ("transformers", *(("cpu",) if kernels == "cpu" else ()), *plugins),
        "plugin_options": {**ALL, **tables},
    }


def greedy(path: Path, *, num_tokens: int = 64, kernels: str = "cpu", **options: Any) -> Run:
    return run(path, prompts(num_tokens), **options_of(kernels), **options)


def prompts(num_tokens: int) -> list[GenerateRequest]:
    params = {"max_tokens": num_tokens, "ignore_eos": True, "logprobs": 1}
    return [toy_request(name, prompt, **params) for name, prompt in PROMPTS.items()]


def expected(path: Path, *, num_tokens: int = 64) -> dict[str, tuple[list[int], list[float]]]:
    """By prompt the tokens and their log-probabilities, by transformers' greedy generation."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    found = {}
    for name, prompt in PROMPTS.items():
        with torch.inference_mode():
            out = model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones((1, len(prompt)), dtype=torch.int64),
                max_new_tokens=num_tokens,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
                output_logits=True,
                return_dict_in_generate=True,
            )
        tokens = out.sequences[0, len(prompt) :].tolist()
        chances = torch.cat(out.logits).float().log_softmax(-1)
        found[name] = tokens, chances[range(len(tokens)), tokens].tolist()
    return found
