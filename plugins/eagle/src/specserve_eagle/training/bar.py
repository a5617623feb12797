"""The progress bar of a training run in a terminal: share of budget, loss, and what would be accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tqdm import tqdm  # type: ignore[import-untyped]

from specserve_eagle.training.unroll import acceptance_length

if TYPE_CHECKING:
    from specserve_eagle.training.loop import Progress

FORMAT = "{desc} {percentage:3.0f}%|{bar}| {elapsed}{postfix}"
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
        left, length = clock(seconds_left(progress, spent)), length_shown(progress)
        self._bar.set_postfix_str(
            f"{left} left, step {progress.step} loss {progress.loss:.3f} acceptance length {length:.2f}",
            refresh=False,
        )
        self._bar.update(min(spent, 1.0) - self._bar.n)

    def close(self) -> None:
        self._bar.close()


def seconds_left(progress: Progress, spent: float) -> float:
    """By the time and the share of the whole run, also of one that was resumed: tqdm knows only what it saw itself."""
    return progress.seconds * (1 - spent) / spent if 0 < spent < 1 else 0.0


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def length_shown(progress: Progress) -> float:
    """The acceptance length of a short draft; a model that is not unrolled has one rate for all its tokens."""
    rates = (progress.greedy * SHOWN_DRAFT)[:SHOWN_DRAFT] if len(progress.greedy) == 1 else progress.greedy
    return acceptance_length(rates[:SHOWN_DRAFT])
