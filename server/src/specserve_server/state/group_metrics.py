"""Metrics of the choices of a prompt together. The engine knows each choice only as a request of its own.

Counted in the event loop, when a response is complete.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specserve.metrics import Histogram, token_histogram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.generation.choices import Choice

CHOICES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


@dataclass(slots=True)
class GroupMetrics:
    n: Histogram = field(default_factory=lambda: Histogram(CHOICES))
    max_num_generation_tokens: Histogram = field(default_factory=token_histogram)
    """Of the longest choice."""

    def count(self, choices: Sequence[Choice], n: int) -> None:
        """`choices`: n for each prompt. Those of a prompt whose choices have not all ended say nothing."""
        for i in range(0, len(choices), n):
            group = choices[i : i + n]
            if all(choice.finish_reason is not None for choice in group):
                self.n.add(n)
                self.max_num_generation_tokens.add(max(choice.num_tokens for choice in group))

    def include(self, n: Histogram, max_num_generation_tokens: Histogram) -> None:
        """What another process has counted."""
        add_counts(self.n, n)
        add_counts(self.max_num_generation_tokens, max_num_generation_tokens)

    def take(self) -> GroupMetrics:
        """For another process, which includes it. Counting begins anew."""
        taken, anew = GroupMetrics(self.n, self.max_num_generation_tokens), GroupMetrics()
        self.n, self.max_num_generation_tokens = anew.n, anew.max_num_generation_tokens
        return taken


def add_counts(histogram: Histogram, more: Histogram) -> None:
    """Both have the same bounds."""
    histogram.counts = [ours + theirs for ours, theirs in zip(histogram.counts, more.counts, strict=True)]
    histogram.total += more.total
