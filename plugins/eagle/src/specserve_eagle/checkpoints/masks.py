"""What config.json says of a P-EAGLE head (arXiv 2602.01469): the token of its masks, and how many tokens it drafts.

Published heads do not all say that they are one: the tensor `mask_hidden` tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve.api import ModelError
from specserve_eagle.checkpoints import speculators
from specserve_eagle.checkpoints.head_config import MaskConfig
from specserve_eagle.checkpoints.layout import MASK_HIDDEN

if TYPE_CHECKING:
    from specserve.api.files import RawJson
    from specserve_eagle.checkpoints.layout import Layout

TOKENS = ("pard_token", "ptd_token_id", "mask_token_id")
"""Names of the mask token; the first that is there counts."""
DEPTHS = ("num_depths", "para_depths")
"""Names of the number of draft tokens."""
DEFAULT_DEPTH = 8
"""The paper's heads are trained for 8 or 10."""


def is_parallel(raw: RawJson, names: frozenset[str], layout: Layout) -> bool:
    promised = raw.get("parallel_drafting") is True or raw.get("speculators_model_type") == "peagle"
    return promised or any(name in names for name in layout.candidates(MASK_HIDDEN))


def masks_of(raw: RawJson, vocab_size: int, where: str) -> MaskConfig:
    """Raises ModelError."""
    key = next((key for key in TOKENS if raw.get(key) is not None), None)
    if key is None:
        raise ModelError(
            f"{where}: the head drafts all tokens in one pass, but none of {', '.join(TOKENS)} names the token of its "
            "masks. Correct the file."
        )
    token = raw[key]
    if type(token) is not int or not 0 <= token < vocab_size:
        raise ModelError(f"{where}: {key} must be a token from 0 to {vocab_size - 1}; got {token!r}. Correct the file.")
    return MaskConfig(token, trained_depth(raw, where))


def trained_depth(raw: RawJson, where: str) -> int:
    stated: list[Any] = [method.get("speculative_tokens") for method in speculators.proposals(raw, where)]
    stated += [raw.get(key) for key in DEPTHS]
    return next((depth for depth in stated if type(depth) is int and depth > 0), DEFAULT_DEPTH)
