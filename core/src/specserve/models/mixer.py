"""The numbers of what a layer has in place of attention, between an input map and an output map: a
`specserve.protocols.Mixer` or `RecurrentMixer`. Letter: H hidden size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from specserve.protocols import Mixer, RecurrentMixer
    from specserve.protocols.part import LinearMaps


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
        """See `specserve.protocols.Mixer`; 0 for a recurrent one, which keeps nothing of a token."""
        return 0

    def state_size(self, hidden: int) -> int:
        """See `specserve.protocols.RecurrentMixer`; 0 where a request has no state."""
        return 0

    def trail_width(self, hidden: int) -> int:
        """See `specserve.protocols.RecurrentMixer`."""
        return 0

    def update_size(self, hidden: int) -> int:
        """See `specserve.protocols.RecurrentMixer`."""
        return 0

    def make(self, tensors: Mapping[str, Tensor]) -> Mixer | RecurrentMixer:
        """tensors: those that `tensors` names, in float32."""
        raise NotImplementedError
