"""Proposals of several drafters for one request, from the newest token or from the end of forced tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.drafts import after, parents_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.request import Request
    from specserve.types import Draft


class Proposal(NamedTuple):
    drafter: str
    draft: Draft
    num_forced: int = 0
    """The number of forced tokens that the draft begins with, which another drafter knew."""

    @property
    def own(self) -> Draft:
        """What the drafter itself proposed."""
        return after(self.draft, self.num_forced) if self.num_forced else self.draft

    def followers(self, tokens: Sequence[int]) -> Sequence[int] | None:
        """The target's tokens that its own part was to predict; None if it was not tried."""
        if not self.num_forced:
            return tokens
        forced, rest = tokens[: self.num_forced], tokens[self.num_forced :]
        return rest if rest and tuple(forced) == self.draft.tokens[: self.num_forced] else None


class OpenDraft(NamedTuple):
    """A request that a drafter may propose for, and what those before it proposed in this step."""

    request: Request
    limit: int
    """Draft tokens that it may propose at most; forced tokens do not count."""
    proposals: Sequence[Proposal] = ()
    """Of the drafters before it."""
    num_forced: int = 0
    """The number of forced tokens after which it would go on."""


def forced_tokens(draft: Draft) -> tuple[int, ...]:
    """The leading chain of draft tokens with survival 1."""
    if draft.survival is None:
        return ()
    for node, (parent, survival) in enumerate(zip(parents_of(draft), draft.survival, strict=True)):
        if parent != node - 1 or survival < 1.0:
            return draft.tokens[:node]
    return draft.tokens
