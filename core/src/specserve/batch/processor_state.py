"""A logits processor's state for one request, and the edits that it may make to a row.

Part of the public interface: plugins find it in `specserve.protocols`. V: vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from torch import Tensor


class LogitEdits(Protocol):
    """A row of logits to which a few changes are made, one after the other. `ids`: array("q") of distinct tokens."""

    def penalize(
        self, ids: array[int], counts: array[float], repetition: float, presence: float, frequency: float, /
    ) -> None:
        """Each of `ids` was seen, counts[i] times in the output; counts: array("f")."""
        ...

    def shift(self, ids: array[int], values: array[float], /) -> None:
        """Add values[i] to the logit of ids[i]; values: array("f")."""
        ...

    def keep_only(self, ids: array[int], /) -> None:
        """All others become -inf."""
        ...

    def forbid(self, ids: array[int], /) -> None:
        """These become -inf."""
        ...

    def keep_bits(self, bits: array[int], /) -> None:
        """Tokens whose bit is 0 become -inf: token i has bit i % 32 of bits[i // 32]. bits: array("I") of
        ceil(V / 32)."""
        ...


class ProcessorState(Protocol):
    """A logits processor's state for one request.

    One that changes a few logits of a row may say which, in a method `edit(edits: LogitEdits, path) -> None`: a native
    sampler then calls neither `apply` nor torch for the row. Both methods must have the same effect.

    One that forbids tokens may cut drafts before they are verified, in a method `cut(draft: Draft) -> Draft | None`:
    the draft without the nodes that it would never let through.

    One that does nothing but forbid tokens may check them instead: see `specserve.protocols.TokenCheck`.
    """

    def apply(self, logits: Tensor, path: Sequence[int]) -> Tensor:
        """logits: [V] float32, may be changed in place; `path`: the draft tokens before this row."""
        ...

    def commit(self, tokens: Sequence[int]) -> None:
        """These tokens are final."""
        ...
