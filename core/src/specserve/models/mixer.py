"""What a layer may have in place of attention: a mixer of a token with a few tokens before it, between an input map and
an output map.

A mixer keeps some numbers of each token in the slots of the KV cache, like a key. So prefix hits, chunks, preemption
and branching drafts need no state of a request, and a rejected draft token leaves nothing behind. Letters: T rows,
H hidden size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from specserve.batch.preceding import PrecedingTokens
    from specserve.models.tensor_names import LinearMaps


class Mixer(ABC):
    """Rows map to rows, and a row's bits depend on its own token path alone."""

    token_width: int
    """Numbers of the model's dtype that it keeps of each token."""
    reach: int
    """How many tokens before a row it reads."""

    @abstractmethod
    def mix(self, rows: Tensor, kept: Tensor, tokens: PrecedingTokens) -> Tensor:
        """rows: [T, the input map's outputs]; kept: [slots, token_width], the layer's part of the cache, in which those
        of the rows are to be written -> [T, the output map's inputs]. Called again with the same rows, it writes and
        returns the same."""


class MixerConfig(msgspec.Struct, frozen=True):
    """The numbers of a layer's mixer: its tensors in the checkpoint, by their paths within the layer, and what it is
    made of. Subclasses are data."""

    def input_maps(self, hidden: int) -> LinearMaps:
        """One or more, of H inputs: their outputs lie behind each other in a row."""
        raise NotImplementedError

    def output_map(self, hidden: int) -> LinearMaps:
        """One, of H outputs."""
        raise NotImplementedError

    def tensors(self, hidden: int) -> dict[str, tuple[int, ...]]:
        """The shapes of its other tensors, by their whole names."""
        return {}

    def token_width(self, hidden: int) -> int:
        """See `Mixer.token_width`."""
        raise NotImplementedError

    def make(self, tensors: Mapping[str, Tensor]) -> Mixer:
        """tensors: those that `tensors` names, in float32."""
        raise NotImplementedError
