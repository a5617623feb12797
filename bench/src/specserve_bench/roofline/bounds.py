"""The least time of a step: that of its bytes or that of its arithmetic, whichever is longer.

Source: Williams, Waterman, Patterson, "Roofline", CACM 2009. Reading and computing are taken to overlap completely, so
that no step can be faster on this machine, and a real one is slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from specserve_bench.roofline.machine import Machine
    from specserve_bench.roofline.work import Work

MEMORY, ARITHMETIC = "memory", "arithmetic"


class Bound(NamedTuple):
    """A step of `num_requests`, each with `rows` rows: its last token and rows - 1 draft tokens."""

    num_requests: int
    rows: int
    memory_seconds: float
    arithmetic_seconds: float

    @property
    def seconds(self) -> float:
        return max(self.memory_seconds, self.arithmetic_seconds)

    @property
    def by(self) -> str:
        return MEMORY if self.memory_seconds >= self.arithmetic_seconds else ARITHMETIC

    @property
    def tokens_per_second(self) -> float:
        """One token for each request: without accepted drafts."""
        return self.num_requests / self.seconds


def bound(work: Work, machine: Machine, num_requests: int, rows: int, context: int) -> Bound:
    memory = work.step_bytes(num_requests, context) / machine.bytes_per_second
    arithmetic = work.step_flops(num_requests * rows, context) / machine.flops
    return Bound(num_requests, rows, memory, arithmetic)


def free_rows(work: Work, machine: Machine, num_requests: int, context: int) -> int:
    """The most rows of each request that a step reads its bytes for anyway; at least one."""
    rows = work.step_bytes(num_requests, context) / machine.bytes_per_second * machine.flops
    return max(1, int(rows / work.step_flops(num_requests, context)))
