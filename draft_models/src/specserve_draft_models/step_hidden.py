"""The hidden states of a step, or of several: over all layers that are read, and of all steps, as one tensor.

Letters: T rows of all steps, W numbers of a hidden state over all layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.batch.hidden_states import HiddenStates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


class StepHidden:
    """The hidden states that one step computed, or several."""

    def __init__(self, steps: Sequence[Mapping[int, Tensor]], layers: Sequence[int]) -> None:
        self.steps, self.layers = list(steps), tuple(layers)
        self.whole: Tensor | None = None
        self.num_rows = sum(num_rows_of(step) for step in steps)
        """T."""

    def append(self, step: Mapping[int, Tensor]) -> None:
        self.steps.append(step)
        self.num_rows += num_rows_of(step)
        self.whole = None

    def joined(self) -> Tensor:
        """[T, W]; without a copy where they lie in one tensor already."""
        if self.whole is None:
            parts = self.parts()
            self.whole = parts[0] if len(parts) == 1 else torch.cat(parts)
        return self.whole

    def parts(self) -> list[Tensor]:
        """The same in as few tensors as it takes without a copy."""
        parts: list[Tensor] = []
        run: list[HiddenStates] = []
        for step in self.steps:
            whole = step if isinstance(step, HiddenStates) and step.layers == self.layers else None
            if run and (whole is None or whole.source is not run[-1].source or whole.begin != run[-1].end):
                parts.append(rows_of(run))
                run = []
            if whole is not None:
                run.append(whole)
            else:
                parts.append(columns_of(step, self.layers))
        if run:
            parts.append(rows_of(run))
        return parts


def num_rows_of(step: Mapping[int, Tensor]) -> int:
    return step.end - step.begin if isinstance(step, HiddenStates) else len(next(iter(step.values())))


def columns_of(step: Mapping[int, Tensor], layers: Sequence[int]) -> Tensor:
    """Some layers, in this order."""
    columns = [step[layer] for layer in layers]
    return columns[0] if len(columns) == 1 else torch.cat(columns, -1)


def rows_of(steps: Sequence[HiddenStates]) -> Tensor:
    """The rows of steps that follow each other in memory."""
    return steps[0].source[steps[0].begin : steps[-1].end]
