"""What full graphs tell layers without attention of a step: the tokens before its rows, and the runs of its states.

Both are loaded for each step. Padding rows keep nothing of a token and belong to no run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.api import Mixer, RunLimits
from specserve.api.batch import state_runs
from specserve.api.models import DecoderModel
from specserve_graphs.preceding_memory import PrecedingMemory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.api import KernelSet
    from specserve.api.batch import Batch, LoadedRuns, StateRun
    from specserve.api.models import ServedModel
    from specserve_graphs.memory import GraphMemory


class HostRuns:
    """`specserve.api.batch.LoadedRuns` where a replay calls the mixers again."""

    def __init__(self) -> None:
        self.runs: Sequence[StateRun] = ()

    def clear(self) -> None:
        self.runs = ()

    def load(self, runs: Sequence[StateRun]) -> str:
        self.runs = runs
        return ""


class MixerInputs:
    """`again`: whether a replay calls the recorded function again."""

    def __init__(self, model: ServedModel, kernels: KernelSet, memory: GraphMemory, *, again: bool) -> None:
        self.model, self.kernels, self.again = model, kernels, again
        self.preceding: PrecedingMemory | None = None
        if model.reach is not None:
            self.preceding = PrecedingMemory(memory.max_rows, model.reach, memory.device)
            memory.preceding = self.preceding
        self.without_padding = mixers_without_padding(model)

    def given(self, padded: Batch, requests: int) -> Batch | str:
        """The padded batch with what its mixers are told, or why it cannot be recorded in full."""
        if self.without_padding:
            return f"mixer {self.without_padding} takes no padding, and is recorded in pieces only"
        preceding = None if self.preceding is None else self.preceding.view(padded.num_rows)
        runs: LoadedRuns | None = None
        if self.model.recurrent:
            runs = self.make_runs(padded.num_rows, requests)
            if runs is None:
                return f"kernels {self.kernels.name} record recurrent layers in pieces only"
        return msgspec.structs.replace(padded, preceding=preceding, runs=runs)

    def make_runs(self, rows: int, requests: int) -> LoadedRuns | None:
        if self.again:
            return HostRuns()
        slots, nodes, _ = self.model.layer_states[0].trails.shape
        return self.kernels.graph_runs(self.model.recurrent, RunLimits(rows, requests, nodes, slots))

    def clear(self, padded: Batch) -> None:
        """Make all rows padding."""
        if self.preceding is not None:
            self.preceding.load(None, padded.num_rows)
        if padded.runs is not None:
            padded.runs.clear()

    def load(self, batch: Batch, padded: Batch) -> str:
        """The batch's, for `padded`. Empty, or why it does not fit."""
        if self.preceding is not None:
            self.preceding.load(batch, padded.num_rows)
        return "" if padded.runs is None else padded.runs.load(state_runs(batch))


def mixers_without_padding(model: ServedModel) -> str:
    """The class of a mixer of neighbouring tokens that takes none; empty where every one does."""
    if model.reach is None:
        return ""
    if not isinstance(model, DecoderModel):
        return "of another library's model"
    mixers = [layer.mixer for layer in model.layers if isinstance(layer.mixer, Mixer)]
    return next((type(mixer).__name__ for mixer in mixers if not mixer.takes_padding), "")
