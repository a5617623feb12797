"""A block head as data: the layers that a block passes through, and what turns hidden states into their keys and
values. Letters: H hidden size, V vocabulary, D draft vocabulary, r rank, L layers, K key heads, d head size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api import DraftVocabulary
    from specserve.api.models import DecoderModel, Projection
    from specserve_eagle.block.config import BlockConfig


@dataclass(frozen=True, slots=True)
class MarkovHead:
    """What a token adds to the logits of the next one: out(entry[token])."""

    entry: Tensor
    """[V, r]."""
    out: Projection
    """[n, r] -> [n, D]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockHead:
    """Parts that a head does not have are None."""

    config: BlockConfig
    decoder: DecoderModel
    """The layers, with an embedding and an output head that may be the target's."""
    vocabulary: DraftVocabulary | None
    """None: the target's."""
    fc: Projection
    """[R, W] -> [R, H]: all hidden states of the target that are read."""
    hidden_norm: Tensor
    """[H]."""
    keys_values: Projection
    """[R, H] -> [R, 2 L K d]: of each layer the keys, then the values."""
    markov: MarkovHead | None
    confidence: Projection | None
    """[n, H] or [n, H + r] -> [n, 1]: the logit of the probability that a draft token is accepted if those before it
    are."""
