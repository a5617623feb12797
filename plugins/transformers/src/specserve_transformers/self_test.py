"""Whether a row has the same bits alone and among others, tried on the model before it serves.

Attention gives each row its own value back, so that rows meet nowhere; everything else is what steps call. A model that
fails is refused with the first module whose output differed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from specserve.api import ModelError
from specserve.api.models import NO_BATCH, inference

if TYPE_CHECKING:
    from torch import Tensor, nn

    from specserve_transformers.stages import Stages
    from specserve_transformers.step import Step

ROWS = 45
"""Of the longest batch: more than a tile, and no multiple of a vector."""
PARTS = ((0, 1), (7, 8), (44, 45), (3, 6), (20, 37), (11, 44))
"""Rows that are computed again by themselves."""


class Tested(NamedTuple):
    """What of a model is tried."""

    stages: Stages
    step: Step
    num_heads: int
    vocab_size: int
    max_model_len: int
    device: torch.device


def own_value(num_heads: int, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """[T, kv_heads, d] -> [T, heads, d]."""
    return v.repeat_interleave(num_heads // v.shape[1], dim=1)


@inference
def check_rows(model: Tested) -> None:
    """Raises ModelError where a row's bits depend on the rows beside it."""
    step, stages = model.step, model.stages
    step.attend, step.at, step.taps = partial(own_value, model.num_heads), NO_BATCH, {}
    numbers = torch.Generator().manual_seed(ROWS)
    ids = torch.randint(model.vocab_size, (ROWS,), generator=numbers)
    ids = (ids % stages.embedding.num_embeddings).to(model.device)  # type: ignore[operator]
    positions = torch.randint(model.max_model_len, (ROWS,), generator=numbers).to(model.device)
    hidden = stages.layers(ids, positions)
    logits = stages.logits(hidden)
    if hidden.shape != (ROWS, hidden.shape[-1]) or logits.shape != (ROWS, model.vocab_size):
        raise ModelError(f"{stages.architecture}: transformers gave hidden states {list(hidden.shape)} of {ROWS} rows")
    for begin, end in PARTS:
        alone = stages.layers(ids[begin:end], positions[begin:end])
        if not same(alone, hidden[begin:end]):
            raise refused(model, first_difference(model, ids, positions, slice(begin, end)), slice(begin, end))
        if not same(stages.logits(alone), logits[begin:end]):
            raise refused(model, "its head", slice(begin, end))


def same(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one, other) or torch.equal(one.nan_to_num(), other.nan_to_num())


def refused(model: Tested, module: str, rows: slice) -> ModelError:
    return ModelError(
        f"architecture {model.stages.architecture} is not served by transformers here: rows {rows.start} to "
        f"{rows.stop - 1} have other bits alone than among {ROWS}, first in {module}. Drafts and neighbours would "
        "change its tokens. Serve another model, or this one with transformers."
    )


def first_difference(model: Tested, ids: Tensor, positions: Tensor, rows: slice) -> str:
    """The first module, in the order in which they end, whose outputs differ."""
    base = model.stages.base
    together = outputs_of(base, lambda: model.stages.layers(ids, positions))
    alone = outputs_of(base, lambda: model.stages.layers(ids[rows], positions[rows]))
    for (path, one), (_, other) in zip(together, alone, strict=True):
        if one.dim() > 1 and one.shape[:2] == (1, ROWS) and not same(one[:, rows], other):
            return path
        if one.dim() == 2 and len(one) == ROWS and not same(one[rows], other):
            return path
    return "the base model"


def outputs_of(base: nn.Module, run: Any) -> list[tuple[str, Tensor]]:
    found: list[tuple[str, Tensor]] = []

    def hook(path: str) -> Any:
        def after(module: nn.Module, args: Any, out: Any) -> None:
            first = out[0] if isinstance(out, tuple) else out
            if isinstance(first, torch.Tensor):
                found.append((f"{path} ({type(module).__name__})", first.clone()))

        return after

    handles = [module.register_forward_hook(hook(path)) for path, module in base.named_modules() if path]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return found
