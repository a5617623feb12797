"""The attention of piecewise graphs: it ends a piece, and what it calls runs between two pieces in every replay. So
does what layers have in place of attention.

The backend sees the rows of the step alone, never padding, and its plan is made anew for every step.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from specserve.api import AttentionBackend, BadAnswerError
from specserve.api.batch import PrecedingTokens, state_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from specserve.api import Cut, LayerStates, Mixer, RecurrentMixer
    from specserve.api.attention import KVCache
    from specserve.api.batch import Batch, StateRun
    from specserve_graphs.memory import GraphMemory


class CutAttention(AttentionBackend):
    """`backend`: the engine's; `of_step` is it, or the part of it that serves the step."""

    def __init__(self, backend: AttentionBackend, memory: GraphMemory, reach: int | None) -> None:
        """reach: how many tokens before a row mixers read; None: there are none."""
        self.name, self.backend, self.memory, self.reach = backend.name, backend, memory, reach
        self.of_step: AttentionBackend = backend
        self.plan_of_step: object = None
        self.tokens_of_step: PrecedingTokens | None = None
        self.runs_of_step: Sequence[StateRun] = ()
        self.num_rows = 0
        self.cut: Cut = run_now
        """The cut of the recording that is made or replayed."""

    @property
    def writable_cache(self) -> KVCache | None:
        return self.backend.writable_cache

    def load(self, batch: Batch) -> None:
        """Before a replay: who attends the step's rows, and its plan for them."""
        self.of_step, self.num_rows = self.backend.backend_for(batch), batch.num_rows
        self.plan_of_step = self.of_step.plan(batch)
        if self.reach is not None:
            self.tokens_of_step = PrecedingTokens.of(batch, self.reach, self.memory.device)
        if any(span.states is not None for span in batch.spans):
            self.runs_of_step = state_runs(batch)

    def forget(self) -> None:
        """After a replay."""
        self.plan_of_step, self.tokens_of_step, self.runs_of_step = None, None, ()

    def plan(self, batch: Batch) -> None:
        """Nothing: see `load`."""

    def forward(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: object) -> Tensor:
        rows, memory = len(q), self.memory
        memory.queries[:rows], memory.keys[:rows], memory.values[:rows] = q, k, v
        self.cut(partial(self.attend_rows, partial(self.forward_rows, layer)))
        return memory.attended[:rows]

    def attend(self, layer: int, q: Tensor, plan: object) -> Tensor:
        rows, memory = len(q), self.memory
        memory.queries[:rows] = q
        self.cut(partial(self.attend_rows, partial(self.attend_written, layer)))
        return memory.attended[:rows]

    def mix(self, mixer: Mixer, rows: Tensor, kept: Tensor, tokens: PrecedingTokens) -> Tensor:
        """tokens: of the recording, which has none."""

        def of_step(given: Tensor) -> Tensor:
            assert self.tokens_of_step is not None, "loaded before it is replayed"
            return self.of_step.mix(mixer, given, kept, self.tokens_of_step)

        return self.mixed(rows, mixer.out_features, of_step)

    def mix_states(self, mixer: RecurrentMixer, rows: Tensor, layer: LayerStates, runs: Sequence[StateRun]) -> Tensor:
        """runs: of the recording, which has none."""

        def of_step(given: Tensor) -> Tensor:
            return self.of_step.mix_states(mixer, given, layer, self.runs_of_step)

        return self.mixed(rows, mixer.out_features, of_step)

    def mixed(self, rows: Tensor, width: int, of_step: Callable[[Tensor], Tensor]) -> Tensor:
        given, mixed = self.memory.around_mixer(rows.shape[1], width)
        given[: len(rows)] = rows

        def between_pieces() -> None:
            mixed[: self.num_rows] = of_step(given[: self.num_rows])

        self.cut(between_pieces)
        return mixed[: len(rows)]

    def attend_rows(self, attention: Callable[[Tensor], Tensor]) -> None:
        queries = self.memory.queries[: self.num_rows]
        out = attention(queries)
        if out.shape != queries.shape:  # a broadcast would reach the rows of other requests
            raise BadAnswerError("gave attention of another shape than the queries")
        self.memory.attended[: self.num_rows] = out

    def forward_rows(self, layer: int, queries: Tensor) -> Tensor:
        keys, values = self.memory.keys[: self.num_rows], self.memory.values[: self.num_rows]
        return self.of_step.forward(layer, queries, keys, values, self.plan_of_step)

    def attend_written(self, layer: int, queries: Tensor) -> Tensor:
        return self.of_step.attend(layer, queries, self.plan_of_step)


def run_now(action: Callable[[], None]) -> None:
    """A cut outside of recordings."""
    action()
