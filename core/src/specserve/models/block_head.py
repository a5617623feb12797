"""A block head as data: the layers that a block passes through, and what turns hidden states into their keys and
values.

Covers DFlash (Chen et al., 2026) and DSpark (DeepSeek, 2026). Letters: H hidden size, W numbers of the target's hidden
state, V vocabulary, D draft vocabulary, r rank, L layers, K key heads, d head size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.models.decoder import DecoderModel
    from specserve.models.projection import Projection
    from specserve.protocols import DraftVocabulary


@dataclass(frozen=True, slots=True)
class MarkovHead:
    """What a token adds to the logits of the next one: out(entry[token]), or out of what the entry and the state of
    that place give (`gate`, `joint`: at most one of them)."""

    entry: Tensor
    """[V, r]."""
    out: Projection
    """[n, r] -> [n, D]."""
    gate: Projection | None = None
    """[n, H + r] -> [n, r], over [state ; entry]: the entry is multiplied by its sigmoids."""
    joint: Projection | None = None
    """[n, 2 r + H] -> [n, 3 r], over [memory ; entry ; state]: what goes on of the memory of the places before, what
    comes to it, and what `out` reads. The memory is 0 at first."""

    @property
    def reads_state(self) -> bool:
        return self.gate is not None or self.joint is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockHead:
    """Parts that a head does not have are None."""

    decoder: DecoderModel
    """The layers, with an embedding and an output head that may be the target's."""
    vocabulary: DraftVocabulary | None
    """None: the target's."""
    first_proposing: int
    """The first row of a block that proposes a draft token."""
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

    @property
    def reads_states(self) -> bool:
        """Whether the Markov head or the confidence head does, behind the final norm."""
        return self.confidence is not None or (self.markov is not None and self.markov.reads_state)

    @property
    def judges_token(self) -> bool:
        """Whether the confidence head reads the entry of the token before, too."""
        return self.confidence is not None and self.confidence.in_features > self.decoder.hidden_size
