"""Interfaces around the model: tokenizer, names of models, metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from specserve.batch.batch import ScheduledBatch
    from specserve.types import ForwardOutput, Verdict


class Metric(msgspec.Struct, frozen=True):
    """One sample for /metrics: kind is counter or gauge; labels in a fixed order."""

    name: str
    help: str
    kind: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


class Observer(Protocol):
    """Gets every step after its commit, for statistics and metrics."""

    def observe(self, batch: ScheduledBatch, verdict: Verdict) -> None:
        """The verdict's tokens belong to the requests already, and drafters were not asked yet. Called in the step's
        thread."""
        ...

    def metrics(self) -> Iterable[Metric]:
        """Called once at start-up, where an invalid sample stops it, and for each request to /metrics, in the event
        loop's thread: so it must be quick, and what the steps change meanwhile is read as it is."""
        ...


class OutputObserver(Protocol):
    """An observer that also reads what the step's forward pass computed."""

    def observe(self, batch: ScheduledBatch, verdict: Verdict, output: ForwardOutput) -> None:
        """Logits are raw, and must stay as they are: drafters read them next."""
        ...

    def metrics(self) -> Iterable[Metric]:
        """As an `Observer`'s."""
        ...


class MetricsSource(Protocol):
    """An observer for its metrics alone, which no step calls: with a small model, every call in a step is felt."""

    observe: None
    """That it is None says so: an observer that lacks it is refused."""

    def metrics(self) -> Iterable[Metric]:
        """As an `Observer`'s."""
        ...


class ResolvedModel(msgspec.Struct, frozen=True):
    """The model that a request names."""

    name: str
    parent: str | None
    adapter: str
    """`Span.adapter` of its requests, and what their caches are keyed by: it contains the adapter's version."""
    release: Callable[[], object] | None = None
    """Called once when the request ends: unpins the adapter. None when nothing is pinned."""


class AnswerCheck(msgspec.Struct, frozen=True):
    """What was found in an ended answer, of a form that could not be enforced while it was generated."""

    valid: bool | None
    """Is the answer what was asked for? None where that could not be found out."""
    unenforced: tuple[str, ...]
    """What was not enforced: `uniqueItems at /properties/tags/uniqueItems`."""
    errors: tuple[str, ...] = ()
    """Why it is not valid, or not known to be."""


class Tokenizer(Protocol):
    """What the engine and the server need of a tokenizer."""

    eos_token_ids: tuple[int, ...]
    vocab_size: int

    def encode(self, text: str) -> list[int]:
        """Token ids, with the special tokens that the model expects around a text."""
        ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of the tokens; invalid UTF-8 becomes U+FFFD."""
        ...

    def stream(self, prompt_ids: Sequence[int], *, skip_special_tokens: bool = True) -> TextStream:
        """A decoder that continues after the prompt."""
        ...


class TextStream(Protocol):
    """Incremental decoding that never cuts a UTF-8 character."""

    def push(self, token_id: int) -> str:
        """The text that this token completes; empty while a character is incomplete."""
        ...
