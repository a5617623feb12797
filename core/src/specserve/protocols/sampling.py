"""From logits to tokens. V: vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.request import Request
    from specserve.sampling.sampler import Row
    from specserve.types import TokenLogprobs


class Sampler(Protocol):
    """From logits [n, V] float32 to tokens. What a row gets depends on that row alone, never on the rows beside it."""

    def argmax_tokens(self, logits: Tensor) -> list[int]:
        """Of every row; the first of equal maxima wins."""
        ...

    def target_tokens(self, logits: Tensor, rows: Sequence[Row]) -> list[int]:
        """The target token of each of `rows`; the logits stay as they are."""
        ...

    def token_logprobs(self, logits: Tensor, tokens: Sequence[int], counts: Sequence[int]) -> list[TokenLogprobs]:
        """Each row's log-probability of its token and its `counts[i]` best, by (value, lower id); logits: raw."""
        ...


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


class ProcessorState(Protocol):
    """A logits processor's state for one request.

    One that changes a few logits of a row may say which, in a method `edit(edits: LogitEdits, path) -> None`: a native
    sampler then spares it the call of `apply` and the row its way through torch. Both must do the same.
    """

    def apply(self, logits: Tensor, path: Sequence[int]) -> Tensor:
        """logits: [V] float32, may be changed in place; `path`: the guesses from the committed tokens to this row."""
        ...

    def commit(self, tokens: Sequence[int]) -> None:
        """These tokens are final."""
        ...


class LogitsProcessor(Protocol):
    """Makes a state for the requests that need it.

    What it or its states raise ends the request concerned. After several faults in a row it is switched off, and
    requests go on without it; one with an attribute `essential` that is true never is.
    """

    def start(self, request: Request, vocab_size: int) -> ProcessorState | None: ...
