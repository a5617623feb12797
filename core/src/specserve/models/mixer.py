"""The numbers of what a layer has in place of attention, a `specserve.protocols.Mixer` between an input map and an
output map. Letter: H hidden size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from specserve.protocols import Mixer
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
        """See `specserve.protocols.Mixer`."""
        raise NotImplementedError

    def make(self, tensors: Mapping[str, Tensor]) -> Mixer:
        """tensors: those that `tensors` names, in float32."""
        raise NotImplementedError
