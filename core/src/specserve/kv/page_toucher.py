"""Has the system allocate the pages of a KV cache on the host before they are written.

A huge page is cleared when it is first written, which takes half a millisecond, and the first tokens of a cache lie in
two of them per layer. A thread of its own does it after start-up, while no step runs; what is in the pages stays.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from specserve.host_memory import HUGE_PAGE, allocate_pages, free_pages_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

BUSY_PAUSE = 0.005
"""Seconds between two looks at an engine that has work."""
LEAST_FREE = 2**30
"""Bytes of memory that are left to others: pages beyond are allocated when they are written."""
PAGES_PER_LOOK = 64
"""Pages between two looks at the free memory, which take as long as a tenth of a page."""


class PageToucher:
    """areas: (address, bytes) of memory that outlives the thread. is_busy: whether a step runs or waits."""

    def __init__(self, areas: Sequence[tuple[int, int]], is_busy: Callable[[], bool]) -> None:
        self.areas, self.is_busy = areas, is_busy
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, name="specserve-pages", daemon=True)

    def start(self) -> None:
        if self.areas:
            self.thread.start()

    def stop(self) -> None:
        """Returns when the thread has ended; it may not have been started."""
        self.stopped.set()
        if self.thread.ident is not None:
            self.thread.join()

    def run(self) -> None:
        for number, (address, size) in enumerate(pages_of(self.areas)):
            while self.is_busy() and not self.stopped.is_set():
                self.stopped.wait(BUSY_PAUSE)
            if self.stopped.is_set() or (number % PAGES_PER_LOOK == 0 and free_pages_memory() < LEAST_FREE):
                return
            if not allocate_pages(address, size):
                return


def pages_of(areas: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The first page of each area, then the second ones: a token's keys and values are at the same place in all."""
    for offset in range(0, max((size for _, size in areas), default=0), HUGE_PAGE):
        for address, size in areas:
            if offset < size:
                yield address + offset, min(HUGE_PAGE, size - offset)
