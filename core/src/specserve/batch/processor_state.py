"""A logits processor's state for one request, and the edits that it may make to a row.

Part of the public interface: plugins find it in `specserve.api`. V: vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.types import Draft


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


class ProcessorState(ABC):
    """A logits processor's state for one request. A subclass has `apply`; everything else has a default."""

    has_edits: bool = False
    """Whether it changes a few logits of a row, which `edit` names: a native sampler then calls neither `apply` nor
    torch for the row. Both must have the same effect."""
    only_forbids: bool = False
    """Whether it does nothing but forbid tokens, of which `only` and `allows` say the same: a token is then chosen
    without its edits where these are not needed, which is faster."""

    cuts_drafts: bool = False
    """Whether it forbids so much that drafts are worth cutting before they are verified."""

    @abstractmethod
    def apply(self, logits: Tensor, path: Sequence[int]) -> Tensor:
        """logits: [V] float32, may be changed in place; `path`: the draft tokens before this row."""

    def commit(self, tokens: Sequence[int]) -> None:  # noqa: B027 (a default)
        """These tokens are final."""

    def edit(self, edits: LogitEdits, path: Sequence[int]) -> None:
        """What `apply` does, as edits. Called of a state that `has_edits`."""
        raise NotImplementedError

    def only(self, path: Sequence[int]) -> int | None:
        """The only token that may come behind the path, where there is one and that is quickly said. Called of a state
        that `only_forbids`."""
        return None

    def allows(self, path: Sequence[int], token: int) -> bool:
        """May the token come behind the path? Called of a state that `only_forbids`."""
        raise NotImplementedError

    def cut(self, draft: Draft) -> Draft | None:
        """The draft without the nodes that this state would never let through. Called of a state that `cuts_drafts`."""
        return draft
