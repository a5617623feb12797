"""The walk of a recurrent mixer over the runs of a step, for mixers that say how one token goes on."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from specserve.protocols import RecurrentMixer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.mixer_inputs import StateRun
    from specserve.protocols import LayerStates


class TokenByToken(RecurrentMixer):
    """Every token is a call of its own, of one shape: so its bits cannot depend on others."""

    @abstractmethod
    def advance(self, state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        """state: [state_size]; row: the first [trail_width] of one -> the state behind it, a fresh tensor, and the
        query that reads the row's output from that."""

    @abstractmethod
    def output(self, state: Tensor, query: Tensor, row: Tensor) -> Tensor:
        """state: behind the row; row: [n] -> [out_features]."""

    def mix(self, rows: Tensor, layer: LayerStates, runs: Sequence[StateRun]) -> Tensor:
        out = rows.new_empty((len(rows), self.out_features))
        for run in runs:
            self.follow(rows, layer, run, out)
        return out

    def follow(self, rows: Tensor, layer: LayerStates, run: StateRun, out: Tensor) -> None:
        """One run, into its rows of `out`."""
        places, width = run.states, self.trail_width
        state, position, saved = layer.states[places.source], places.position, dict(places.saved)
        followed = [layer.trails[places.source, node] for node in places.followed]
        own = rows[run.first_row : run.first_row + run.known + len(run.parents)]
        for i, row in enumerate([*followed, *own[: run.known]]):
            (state, query), position = self.advance(state, row[:width]), position + 1
            if position in saved:
                layer.states[saved[position]] = state
            if i >= len(followed):
                out[run.first_row + i - len(followed)] = self.output(state, query, row)
        layer.states[places.target] = state
        of_nodes: list[Tensor] = []
        for node, parent in enumerate(run.parents):
            row, at = own[run.known + node], run.first_row + run.known + node
            behind, query = self.advance(state if parent < 0 else of_nodes[parent], row[:width])
            of_nodes.append(behind)
            out[at] = self.output(behind, query, row)
            layer.trails[places.target, node] = row[:width]
