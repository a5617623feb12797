"""What a run says at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from soak.leaks import REACHED, State, growth

if TYPE_CHECKING:
    from soak.ledger import Ledger


class Report(NamedTuple):
    ledger: Ledger
    requests_per_second: float
    seconds: float
    memory: list[int]
    """Bytes, two samples a second."""
    after: State | None

    @property
    def passed(self) -> bool:
        return not self.ledger.failures and self.after is not None

    def lines(self) -> list[str]:
        ledger = self.ledger
        rows = [
            ("requests", ledger.requests.total()),
            *((f"  {kind}", n) for kind, n in sorted(ledger.requests.items())),
        ]
        rows += [("ways of asking", ledger.ways.total()), *((f"  {way}", n) for way, n in sorted(ledger.ways.items()))]
        rows += sorted(ledger.outcomes.items())
        rows += [(f"refused with {status}", n) for status, n in sorted(ledger.refused.items())]
        if self.after is not None:
            rows += [(what, int(self.after.metrics[name])) for what, name in REACHED.items()]
        rows += [(kind, ledger.failures[kind]) for kind in ("lost", "wrong", "leaked")]
        rows += [(kind, n) for kind, n in ledger.failures.items() if kind not in ("lost", "wrong", "leaked")]
        width = max(len(what) for what, _ in rows)
        table = [f"{what:{width}}  {count:>8}" for what, count in rows]
        return [*ledger.told, *table, *self.summary()]

    def summary(self) -> list[str]:
        lines = [f"{self.requests_per_second:.1f} requests per second over {self.seconds:.0f} s"]
        if self.memory:
            lines.append(
                f"memory {self.memory[0] / 2**20:.0f} MiB at the start, {max(self.memory) / 2**20:.0f} at most, "
                f"{self.memory[-1] / 2**20:.0f} at the end; growth in the last quarter {growth(self.memory):+.2%}"
            )
        return [*lines, "passed" if self.passed else "FAILED"]
