"""Small random P-EAGLE heads in the published layouts: EAGLE-3 heads of two layers with what their masks read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from toy_heads import SIZES, D, H, change_tensors, random_head, speculators, with_second_layer, write_head

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    Tensors = dict[str, Tensor]

MASK, READS = 62, [0, 1, 2]
LAYERS_READ = {"eagle_aux_hidden_state_layer_ids": READS}
PROPOSALS = {"proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 6}]}
FORMS: dict[str, tuple[str, dict[str, Any], str, tuple[int, ...]]] = {
    "eagle3": (
        "specforge", LAYERS_READ | {"num_hidden_layers": 2, "ptd_token_id": MASK}, "mask_hidden", (1, 3 * H),
    ),
    "pard": (
        "vllm-eagle3",
        LAYERS_READ | {"num_hidden_layers": 2, "pard_token": MASK, "mask_token_id": 1, "parallel_drafting": True},
        "model.mask_hidden",
        (3 * H,),
    ),
    "speculators": (
        "speculators-eagle3",
        speculators("peagle", draft_vocab_size=D, norm_before_residual=True, mask_token_id=MASK, **LAYERS_READ) | {
            "architectures": ["PEagleSpeculator"],
            "speculators_config": {"algorithm": "peagle"} | PROPOSALS,
            "transformer_layer_config": SIZES | {"model_type": "llama", "num_hidden_layers": 2},
        },
        "mask_hidden",
        (1, 1, 3 * H),
    ),
}  # fmt: skip
"""By how it says that it is one: (format, keys of config.json, name and shape of what masks read)."""


def random_parallel_head(seed: int = 0) -> Tensors:
    """Canonical tensors."""
    head = with_second_layer(random_head("eagle3", seed=seed))
    return head | {"mask_hidden": torch.randn(3 * H, generator=torch.Generator().manual_seed(seed + 1))}


def write_parallel_head(path: Path, form: str = "eagle3", head: Tensors | None = None, **changes: Any) -> Path:
    """The head in directory `path`; `changes` are keys of config.json."""
    layout, keys, name, shape = FORMS[form]
    tensors = dict(random_parallel_head() if head is None else head)
    masks = tensors.pop("mask_hidden").view(shape)
    write_head(path, layout, tensors, **(keys | changes))
    return change_tensors(path, **{name.replace(".", "__"): masks})
