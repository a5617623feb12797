"""Gated delta nets of a layer in one native call. States, windows and trails are those of the core's `GatedDeltaNet`;
sums have an order of their own."""

from __future__ import annotations

from array import array
from itertools import chain
from typing import TYPE_CHECKING

from specserve.api import RecurrentMixer
from specserve.api.models import GatedDeltaNet
from specserve_cpu import _native
from specserve_cpu.attention import native_module
from specserve_cpu.dlpack import dlpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor

    from specserve.api import LayerStates, Mixer
    from specserve.api.batch import StateRun

MOST_TAPS = 8
NO_RUNS = array("q")
"""Of a model without recurrent layers."""


class DeltaCalls:
    """What the layers of all models share: memory for a call, and the runs of a step, which are listed once."""

    def __init__(self, machine: _native.Machine) -> None:
        self.machine = machine
        self.workspace = _native.DeltaWorkspace(machine)
        self.runs: Sequence[StateRun] = ()
        self.listed: array[int] = array("q")

    def list_of(self, runs: Sequence[StateRun]) -> array[int]:
        if runs is not self.runs:
            self.runs, self.listed = runs, list_of(runs)
        return self.listed


def list_of(runs: Sequence[StateRun]) -> array[int]:
    """As `_native.DtypeModule` reads them."""
    numbers = array("q")
    for places, first_row, known, parents in runs:
        followed = places.followed
        numbers.extend((places.source, places.target, places.position, first_row, known, len(followed), *followed))
        numbers.extend((len(parents), *parents, len(places.saved)))
        numbers.extend(chain.from_iterable(places.saved))
    return numbers


class NativeDeltaNet(RecurrentMixer):
    """mixer: the core's, whose weights it reads."""

    def __init__(self, calls: DeltaCalls, mixer: GatedDeltaNet, dtype: torch.dtype) -> None:
        config = mixer.config
        self.calls = calls
        self.state_size, self.trail_width, self.out_features = mixer.state_size, mixer.trail_width, mixer.out_features
        self.update_size = mixer.update_size
        self.native = native_module(dtype).GatedDeltaNet(
            machine=calls.machine,
            workspace=calls.workspace,
            numbers=(config.key_heads, config.value_heads, config.key_dim, config.value_dim, config.taps),
            taps=dlpack(mixer.taps),
            dt_bias=dlpack(mixer.dt_bias.contiguous()),
            rate=dlpack(mixer.rate.contiguous()),
            norm=dlpack(mixer.norm.contiguous()),
            eps=config.norm_eps,
        )

    def mix(self, rows: Tensor, layer: LayerStates, runs: Sequence[StateRun]) -> Tensor:
        out = rows.new_empty((len(rows), self.out_features))
        listed = self.calls.list_of(runs)
        states, trails, updates = map(dlpack, layer)
        self.native.mix(dlpack(rows), states, trails, updates, listed, dlpack(out))
        return out


def native_mixer(calls: DeltaCalls, mixer: Mixer | RecurrentMixer, dtype: torch.dtype) -> NativeDeltaNet | None:
    """None where it has no kernels: for other mixers, those that change what a gated delta net computes among them, and
    for longer convolutions."""
    if type(mixer) is not GatedDeltaNet:
        return None
    config = mixer.config
    if config.taps > MOST_TAPS or config.value_heads % config.key_heads:
        return None
    return NativeDeltaNet(calls, mixer, dtype)
