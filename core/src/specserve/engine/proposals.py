"""What a drafter proposed for a request, from the newest token or from the end of tokens that are certain, and how much
of it was right."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.drafts import ROOT, behind, match, parents_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.request import Request
    from specserve.guards.drafter import GuardedDrafter
    from specserve.protocols import SurvivalEstimates
    from specserve.types import Draft


class Proposal(NamedTuple):
    guard: GuardedDrafter
    draft: Draft
    num_certain: int = 0
    """The draft begins with so many tokens that another drafter knew to be certain."""

    @property
    def own(self) -> Draft:
        """What the drafter itself proposed."""
        return behind(self.draft, self.num_certain) if self.num_certain else self.draft

    def survival(self, calibration: SurvivalEstimates, request: Request) -> list[float]:
        """P(node and its ancestors are accepted), for every node of the draft."""
        return [*(1.0,) * self.num_certain, *calibration.survival(self.own, request)]

    def followers(self, tokens: Sequence[int]) -> Sequence[int] | None:
        """Of the tokens that the target gave those that its own part had to foretell; None where it was not tried."""
        if not self.num_certain:
            return tokens
        certain, rest = tokens[: self.num_certain], tokens[self.num_certain :]
        return rest if rest and tuple(certain) == self.draft.tokens[: self.num_certain] else None


def certain_tokens(draft: Draft) -> tuple[int, ...]:
    """The leading chain of draft tokens with survival 1."""
    if draft.survival is None:
        return ()
    for node, (parent, survival) in enumerate(zip(parents_of(draft), draft.survival, strict=True)):
        if parent != node - 1 or survival < 1.0:
            return draft.tokens[:node]
    return draft.tokens


def right_tokens(draft: Draft, survival: Sequence[float], tokens: Sequence[int]) -> float:
    """How many draft tokens along one path were right. What lies behind the last known token counts as estimated."""
    node, depth = match(draft, tokens)
    if depth < len(tokens) or node == ROOT or not survival[node]:
        return depth
    below = {node}
    beyond = 0.0
    for child, parent in enumerate(parents_of(draft)):
        if parent in below:
            below.add(child)
            beyond += survival[child] / survival[node]
    return depth + beyond
