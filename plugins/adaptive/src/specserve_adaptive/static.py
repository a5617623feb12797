"""Always the same number of draft tokens, for benchmarks and for debugging."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve.speculation.planning import VerifyAll

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specserve.protocols import Metric


class StaticPlanner(VerifyAll):
    """Asks for so many draft tokens in every step and verifies them."""

    def describe(self) -> dict[str, Any]:
        return {"mode": "static", "tokens": self.max_draft_tokens}

    def metrics(self) -> Iterable[Metric]:
        return ()
