"""Greedy generation of the demo model by Hugging Face transformers, optionally with a PEFT adapter."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.lib.workload import DTYPE, MODEL
from specserve.models.locate import locate_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def transformers_generate(prompt: tuple[int, ...], adapter: Path | None = None) -> Callable[[int], None]:
    """The returned function generates exactly that number of tokens after the prompt. The adapter is not merged."""
    transformers = untyped("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(locate_model(MODEL), dtype=getattr(torch, DTYPE)).eval()
    if adapter is not None:
        model = untyped("peft").PeftModel.from_pretrained(model, str(adapter))
    ids = torch.tensor([prompt])
    mask = torch.ones_like(ids)

    @torch.inference_mode()
    def generate(count: int) -> None:
        out = model.generate(
            input_ids=ids, attention_mask=mask, do_sample=False, min_new_tokens=count, max_new_tokens=count
        )
        assert out.shape[1] == ids.shape[1] + count

    return generate


def untyped(name: str) -> Any:
    """A module without types, which only the development group installs."""
    return importlib.import_module(name)
