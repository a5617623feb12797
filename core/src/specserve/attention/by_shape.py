"""Attention of a model whose layers have heads of several sizes: a backend, and a part of the cache, for each of them.

The parts lie under the same block ids. Knows nothing of how a backend computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.protocols import Arithmetic, AttentionBackend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.batch.mixer_inputs import StateRun
    from specserve.batch.preceding import PrecedingTokens
    from specserve.kv.head_shape import HeadShape
    from specserve.protocols import LayerStates, Mixer, RecurrentMixer


class Member(NamedTuple):
    """Which of the backends serves a layer, and as which of its layers."""

    number: int
    layer: int


def members_of(shapes: Sequence[HeadShape]) -> list[Member]:
    """shapes: of each layer. Layers of one shape have one backend, in the order in which shapes come first."""
    numbers = {shape: number for number, shape in enumerate(dict.fromkeys(shapes))}
    return [Member(numbers[shape], shapes[:layer].count(shape)) for layer, shape in enumerate(shapes)]


class AttentionByShape(AttentionBackend):
    """`specserve.protocols.AttentionBackend` of backends of one kind. members: by layer."""

    def __init__(self, backends: Sequence[AttentionBackend], members: Sequence[Member]) -> None:
        self.backends, self.members = tuple(backends), tuple(members)
        self.name = f"{self.backends[0].name} for heads of {len(self.backends)} sizes"

    @property
    def arithmetic(self) -> Arithmetic:
        return self.backends[0].arithmetic

    def plan(self, batch: Batch) -> list[object]:
        """By backend."""
        return [backend.plan(batch) for backend in self.backends]

    def forward(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: Sequence[object]) -> Tensor:
        number, own_layer = self.members[layer]
        return self.backends[number].forward(own_layer, q, k, v, plan[number])

    def write(self, layer: int, k: Tensor, v: Tensor, batch: Batch) -> None:
        number, own_layer = self.members[layer]
        self.backends[number].write(own_layer, k, v, batch)

    def mix(self, mixer: Mixer, rows: Tensor, kept: Tensor, tokens: PrecedingTokens) -> Tensor:
        """Of layers without attention: no backend's concern."""
        return self.backends[0].mix(mixer, rows, kept, tokens)

    def mix_states(self, mixer: RecurrentMixer, rows: Tensor, layer: LayerStates, runs: Sequence[StateRun]) -> Tensor:
        """Of layers without attention: no backend's concern."""
        return self.backends[0].mix_states(mixer, rows, layer, runs)
