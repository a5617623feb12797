"""The recorder of CPUs: a replay runs the recorded function again, over the same memory.

It makes nothing faster. It makes everything around a recording testable without a CUDA device: padding, buckets, which
steps are replayed and why others are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import BadAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.api import Cut


class ReferenceRecording:
    """`specserve.api.Recording`."""

    def __init__(self, function: Callable[[Cut], None]) -> None:
        self.function = function
        self.num_cuts = 0
        function(self.skip)

    def skip(self, action: Callable[[], None]) -> None:
        self.num_cuts += 1

    def replay(self) -> None:
        num_cuts = 0

        def cut(action: Callable[[], None]) -> None:
            nonlocal num_cuts
            num_cuts += 1
            action()

        self.function(cut)
        if num_cuts != self.num_cuts:  # a real graph would have replayed those of the recording
            raise BadAnswerError(f"was replayed in {num_cuts + 1} pieces, and recorded in {self.num_cuts + 1}")


class ReferenceRecorder:
    """`specserve.api.Recorder`."""

    name = "reference"
    calls_again = True
    num_bytes = 0

    def record(self, function: Callable[[Cut], None]) -> ReferenceRecording:
        return ReferenceRecording(function)
