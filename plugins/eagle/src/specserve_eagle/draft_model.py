"""What is loaded of a draft model, whatever its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from specserve.api import DraftLayers
    from specserve.api.models import DraftHead
    from specserve_draft_models import Masks


class Lookahead(NamedTuple):
    """How far behind the committed tokens a draft model computes."""

    num_rows: int
    """Rows of one request at most, the last committed token among them."""
    has_trees: bool


class DraftModel(NamedTuple):
    """A head or a stand-alone model, and what its layers need of the engine."""

    head: DraftHead
    layers: DraftLayers
    hidden_layers: tuple[int, ...]
    """Layers of the target whose outputs it reads."""
    masks: Masks | None = None
    """Of a P-EAGLE head, which proposes all tokens in one pass."""
    tokens_per_pass: int = 1
    """Draft tokens that it was trained to propose in a pass."""
