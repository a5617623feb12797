"""A draft model as data: a decoder, and how a token and a hidden state become the input of its layers.

Covers EAGLE-1/2 and EAGLE-3 (Li et al., 2024, 2025), EAGLE-3.1 (2026), MTP (DeepSeek-V3, 2024) and stand-alone models,
which read no hidden state. Letters: H the draft model's hidden size, W numbers of the target's hidden state, D its
vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.models.decoder import DecoderModel
    from specserve.models.projection import Projection
    from specserve.models.target_norm import TargetNorm
    from specserve.protocols import DraftVocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftHead:
    """Parts that the architecture does not have are None."""

    decoder: DecoderModel
    """Its embedding and its output head may be the target's."""
    vocabulary: DraftVocabulary | None
    """None: the target's."""
    from_target: Projection | TargetNorm | None
    """[R, W] -> [R, H], for hidden states of the target; None: none are read."""
    target_norms: tuple[Tensor, ...] = ()
    """Of equal parts of a hidden state of the target, before `from_target` (EAGLE-3.1 norms that of each layer)."""
    fc: Projection | None = None
    """[R, 2H] -> [R, H], over embedding and hidden state. Without it the hidden state is the layers' input, and the
    first layer reads the embedding as its auxiliary input (`DecoderLayer.aux_norm`)."""
    embedding_first: bool = True
    """The order in which `fc` reads them."""
    enorm: Tensor | None = None
    hnorm: Tensor | None = None
    """[H]: norms of both before they are joined."""
    feeds_back_norm: bool = False
    """The next pass reads the own hidden state behind the final norm."""

    @property
    def reads_hidden(self) -> bool:
        return self.from_target is not None

    def normed_parts(self, hidden: Tensor) -> Tensor:
        """[R, W] -> the same, with `target_norms`."""
        if not self.target_norms:
            return hidden
        parts = hidden.chunk(len(self.target_norms), -1)
        normed = [self.decoder.normed(part.contiguous(), w) for part, w in zip(parts, self.target_norms, strict=True)]
        return torch.cat(normed, -1)
