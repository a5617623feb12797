"""Adapters that PEFT writes, and its own text under them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from runs import PROMPTS
from transformers import AutoModelForCausalLM

if TYPE_CHECKING:
    from pathlib import Path


def write_peft(path: Path, model: Path, **config: Any) -> Path:
    """config: of LoraConfig."""
    torch.manual_seed(1)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    adapted = get_peft_model(base, LoraConfig(r=6, lora_alpha=10, **config))
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    adapted.save_pretrained(path)
    return path


@torch.inference_mode()
def peft_text(model: Path, adapter: Path, num_tokens: int) -> dict[str, list[int]]:
    """By prompt, the tokens."""
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager")
    adapted = PeftModel.from_pretrained(base, adapter).eval()
    found = {}
    for name, prompt in PROMPTS.items():
        ids = torch.tensor([prompt])
        mask = torch.ones_like(ids)
        out = adapted.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=num_tokens, do_sample=False, eos_token_id=None
        )
        found[name] = out[0, len(prompt) :].tolist()
    return found
