"""What a draft model's card promises, and the warning where drafts are accepted far less often.

A head of another target, another style of rotation or a broken export drafts without an error: it shows only here. What
is promised stands in a file beside the weights, which `specserve-eagle train` writes.
"""

from __future__ import annotations

import logging
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING

import msgspec

from specserve.api import ModelError
from specserve.api.files import read_json

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.api import Verdict
    from specserve.api.batch import ScheduledBatch

log = logging.getLogger(__name__)

CARD_FILE = "acceptance.json"
MAX_RATES = 256
ENOUGH_DRAFTS = 200
"""Greedy drafts that are judged together."""
FAR_BELOW = 0.5
"""Of the promised draft tokens."""


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`acceptance.json`."""

    rates: tuple[float, ...]
    """By draft position: the share that greedy verification accepts of those whose earlier tokens were."""


def read_card(path: Path) -> Card | None:
    """None where there is none. Raises ModelError."""
    if not (path / CARD_FILE).exists():
        return None
    try:
        card = msgspec.convert(read_json(path / CARD_FILE), Card)
    except msgspec.ValidationError as error:
        raise ModelError(f"{path / CARD_FILE}: {error}. Correct or remove it.") from None
    if not 1 <= len(card.rates) <= MAX_RATES or not all(0 <= rate <= 1 for rate in card.rates):
        raise ModelError(
            f"{path / CARD_FILE}: rates must be 1 to {MAX_RATES} numbers from 0 to 1; got {str(card.rates)[:100]}. "
            "Correct or remove it."
        )
    return card


class AcceptanceWatch:
    """Compares what is accepted of the chains of one drafter with its card, and warns once. Sampled requests do not
    count: what of their drafts is accepted depends on their temperature."""

    def __init__(self, card: Card, drafter: str, model: str) -> None:
        self.drafter, self.model = drafter, model
        self.promised_of = [0.0, *accumulate(accumulate(card.rates, mul))]
        """By the length of a chain: draft tokens that are accepted of it on average."""
        self.done = False
        self.clear()

    def clear(self) -> None:
        self.drafts, self.accepted, self.promised = 0, 0, 0.0

    def observe(self, batch: ScheduledBatch, verdict: Verdict) -> None:
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            draft = span.draft
            if self.done or draft is None or not decided.tokens or span.request.params.temperature:
                continue
            if draft.source != self.drafter or draft.sources is not None or draft.parents is not None:
                continue
            self.drafts += 1
            self.accepted += len(decided.path)
            self.promised += self.promised_of[min(len(draft.tokens), len(self.promised_of) - 1)]
            if self.drafts == ENOUGH_DRAFTS:
                self.judge()

    def judge(self) -> None:
        if self.accepted < FAR_BELOW * self.promised:
            self.done = True
            log.warning(
                "drafter %s: of %d greedy drafts %.2f tokens were accepted on average, and the card of %s promises "
                "%.2f. Answers are the same, but slower. Was it trained for another target, another form of the target "
                "(weights of few bits, a fine-tune), or another style of rotation? Or is the text far from what it was "
                "trained on? `specserve-eagle eval` measures it on yours",
                self.drafter, self.drafts, self.accepted / self.drafts, self.model, self.promised / self.drafts,
            )  # fmt: skip
        self.clear()
