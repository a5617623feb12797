"""Greedy generation by Hugging Face transformers, optionally with a PEFT adapter."""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.lib.workload import DTYPE, MODEL
from specserve.models.locate import locate_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def transformers_generate(prompt: tuple[int, ...], adapter: Path | None = None) -> Callable[[int], None]:
    """The returned function generates exactly that number of tokens after the prompt. The adapter is not merged."""
    return partial(generate, transformers_model(MODEL, adapter), prompt)


def transformers_model(name: str, adapter: Path | None = None) -> Any:
    """name: an installed model or a directory."""
    transformers = untyped("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(locate_model(name), dtype=getattr(torch, DTYPE)).eval()
    return model if adapter is None else untyped("peft").PeftModel.from_pretrained(model, str(adapter))


@torch.inference_mode()
def generate(model: Any, prompt: tuple[int, ...], count: int) -> None:
    """Exactly `count` tokens behind the prompt."""
    ids = torch.tensor([prompt])
    mask = torch.ones_like(ids)
    out = model.generate(
        input_ids=ids, attention_mask=mask, do_sample=False, min_new_tokens=count, max_new_tokens=count
    )
    assert out.shape[1] == ids.shape[1] + count


def untyped(name: str) -> Any:
    """A module without types, which only the development group installs."""
    return importlib.import_module(name)
