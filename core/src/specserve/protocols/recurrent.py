"""What stands in place of attention in recurrent layers: a mixer with one state of a request, whatever its length.

Letter: T rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.mixer_inputs import StateRun


class LayerStates(NamedTuple):
    """A layer's part of the memory of states."""

    states: Tensor
    """[slots, state_size] float32; slot 0 is zero and stays so."""
    trails: Tensor
    """[slots, most draft tokens of a step, trail_width] of the model's dtype: what a slot's draft tokens left."""
    updates: Tensor
    """[slots, most draft tokens of a step, update_size] float32: what else they left."""


class RecurrentMixer(ABC):
    """A row's bits depend on its own token path alone: states go on token by token, in one order of operations.

    A step reads the source of each run and writes its target, and it may be computed again: sources are not changed.
    Accepted draft tokens are followed in the next step, by what they left in the trail of the slot that their step had
    written; so no state is kept for a draft token.
    """

    state_size: int
    """Numbers of a request's state, in float32."""
    trail_width: int
    """How many of a row's first numbers a state needs to go on."""
    update_size: int = 0
    """Numbers in float32 that kernels may leave of a draft token beside its row, such as what it adds to the state, so
    that following it costs less; 0 for none."""
    out_features: int
    """Numbers of a row that it gives to the layer's output map."""

    @abstractmethod
    def mix(self, rows: Tensor, layer: LayerStates, runs: Sequence[StateRun]) -> Tensor:
        """rows: [T, n], what the layer's input map gives -> [T, out_features], a fresh tensor of the same dtype."""
