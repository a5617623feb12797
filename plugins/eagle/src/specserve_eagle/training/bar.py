"""The progress bar of a training run: the share of its budget, the loss, and what the head would accept."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tqdm import tqdm  # type: ignore[import-untyped]

from specserve_eagle.training.unroll import acceptance_length

if TYPE_CHECKING:
    from types import TracebackType

    from specserve_eagle.training.loop import Progress

FORMAT = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining} {postfix}"
SHOWN_DRAFT = 3
"""Draft tokens of the acceptance length that is shown."""
LOG_SECONDS = 30.0
FIRST_SECONDS = 0.01
"""Nothing is shown before the first step: an error may come instead."""


class Bar:
    """`show` is called after every step. In a log file a line is written every half minute."""

    def __init__(self, head: str) -> None:
        interval = 0.5 if sys.stderr.isatty() else LOG_SECONDS
        self._bar = tqdm(
            total=1.0, desc=head, bar_format=FORMAT, mininterval=interval, dynamic_ncols=True, delay=FIRST_SECONDS
        )

    def show(self, progress: Progress, spent: float) -> None:
        rates = (progress.greedy * SHOWN_DRAFT)[:SHOWN_DRAFT] if len(progress.greedy) == 1 else progress.greedy
        length = acceptance_length(rates[:SHOWN_DRAFT])
        self._bar.set_postfix_str(
            f"step {progress.step} loss {progress.loss:.3f} acceptance length {length:.2f}", refresh=False
        )
        self._bar.update(min(spent, 1.0) - self._bar.n)

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
