"""The progress bar of a training run in a terminal: share of budget, loss, and what would be accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tqdm import tqdm  # type: ignore[import-untyped]

from specserve_eagle.training.unroll import acceptance_length

if TYPE_CHECKING:
    from specserve_eagle.training.loop import Progress

FORMAT = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining} {postfix}"
SHOWN_DRAFT = 3
"""Draft tokens of the acceptance length that is shown."""
SECONDS = 0.5
FIRST_SECONDS = 0.01
"""Nothing is shown before the first step: an error may come instead."""


class Bar:
    """`show` is called after every step."""

    def __init__(self, head: str) -> None:
        self._bar = tqdm(
            total=1.0, desc=head, bar_format=FORMAT, mininterval=SECONDS, dynamic_ncols=True, delay=FIRST_SECONDS
        )

    def show(self, progress: Progress, spent: float) -> None:
        self._bar.set_postfix_str(
            f"step {progress.step} loss {progress.loss:.3f} acceptance length {length_shown(progress):.2f}",
            refresh=False,
        )
        self._bar.update(min(spent, 1.0) - self._bar.n)

    def close(self) -> None:
        self._bar.close()


def length_shown(progress: Progress) -> float:
    """The acceptance length of a short draft; a model that is not unrolled has one rate for all its tokens."""
    rates = (progress.greedy * SHOWN_DRAFT)[:SHOWN_DRAFT] if len(progress.greedy) == 1 else progress.greedy
    return acceptance_length(rates[:SHOWN_DRAFT])
