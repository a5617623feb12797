"""From logits to tokens. V: vocabulary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from torch import Tensor

    from specserve.batch.processor_state import ProcessorState
    from specserve.batch.request import Request
    from specserve.types import TokenLogprobs


class ScoredRow(NamedTuple):
    """A row of logits to decide: its index in the logits, its request, and the draft tokens before it."""

    row: int
    request: Request
    path: tuple[int, ...]
    left_out: Sequence[ProcessorState] = ()
    """Processors of the request that only check the token that the others choose."""

    @property
    def processors(self) -> Sequence[ProcessorState]:
        """Those that change the row, in order."""
        if not self.left_out:
            return self.request.processors
        return [state for state in self.request.processors if state not in self.left_out]


class DraftToken(NamedTuple):
    """A token of the target's vocabulary, and its probability where its parent in the draft is right."""

    token: int
    probability: float


class DraftVocabulary(NamedTuple):
    """The tokens of a draft model that has fewer than its target. ids: [D] int64, the target's ids."""

    ids: Tensor
    target_size: int


class Sampler(ABC):
    """From logits [n, V] float32 to tokens. What a row gets depends on that row alone, never on the rows beside it."""

    records_greedy: bool = False
    """Whether `greedy_tokens` may be part of a recorded pass."""

    @abstractmethod
    def argmax_tokens(self, logits: Tensor) -> list[int]:
        """The token of the largest logit of every row; the first of equal maxima wins."""

    @abstractmethod
    def target_tokens(self, logits: Tensor, rows: Sequence[ScoredRow]) -> list[int]:
        """The target token of each of `rows`; the logits stay as they are."""

    @abstractmethod
    def token_logprobs(self, logits: Tensor, tokens: Sequence[int], counts: Sequence[int]) -> list[TokenLogprobs]:
        """Each row's log-probability of its token and its `counts[i]` best, by (value, lower id); logits: raw."""

    def greedy_tokens(self, logits: Tensor, out: Tensor) -> None:
        """out: [n] int64, what `argmax_tokens` gives. Called of a sampler that states `records_greedy`."""
        raise NotImplementedError

    def draft_tokens(
        self, logits: Tensor, rows: Sequence[ScoredRow], vocabulary: DraftVocabulary | None, count: int
    ) -> list[list[DraftToken]] | None:
        """logits: [n, D] float32 of a draft model; vocabulary: None where it has the target's. For each of `rows` at
        most `count` distinct tokens, best first: those that the target is likeliest to choose with its own noise. None:
        `specserve.sampling.drafts` chooses."""
        return None


class LogitsProcessor(ABC):
    """Makes a state for the requests that need it.

    What it or its states raise ends the request concerned. After several faults in a row it is switched off, and
    requests go on without it, unless it is essential.
    """

    essential: bool = False
    """Whether it is never switched off."""
    output_kinds: Collection[str] = ()
    """The kinds of `specserve.types.StructuredOutput` that it enforces; a request with another kind is refused."""

    @abstractmethod
    def start(self, request: Request, vocab_size: int) -> ProcessorState | None:
        """Called once when the request is admitted. None: its logits stay as they are, at no cost."""
