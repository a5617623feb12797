"""Passes of the target over guesses behind committed tokens, for drafters that have no layers of their own.

They change nothing that lasts: keys and values go to slots behind the computed tokens, or to blocks of no request, and
the next step writes over them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.request import Request
    from specserve.protocols.sampling import Sampler


class GuessedRows(NamedTuple):
    """A request's last token and guesses behind it: 1 + len(guesses) rows, each of which sees those before it."""

    request: Request
    guesses: Sequence[int]


class DraftAdapter(NamedTuple):
    """An adapter for drafts alone: no request names it."""

    packed: object
    """As `AdaptableModel.pack_adapter` made it."""
    rank: int


class TargetPass(ABC):
    """The target with the weights, kernels, attention and cache that serve requests."""

    sampler: Sampler
    max_requests: int
    """Of a pass, at least one; several have no more rows than a step. Further ones are computed in other passes."""

    @abstractmethod
    def logits(self, rows: Sequence[GuessedRows], adapter: DraftAdapter | None = None) -> Tensor:
        """[all rows, V] float32. Each request once, whose tokens but the last are computed. Last tokens are computed as
        a step computes them, with the request's own adapter: their logits are the next step's, bit for bit where the
        attention backend is row-invariant. Guesses are computed with `adapter` instead; None: with the request's,
        too. They are valid until the next pass or step, and where graphs are on, they may lie where the step's
        logits lay."""
