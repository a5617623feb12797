"""Why each step of an answer accepted no more draft tokens, where specserve was asked by `return_speculation`."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

NUMBER = re.compile(r"\d+")


class Step(msgspec.Struct, frozen=True):
    stopped: str
    reason: str | None = None
    """Why fewer draft tokens were verified than could have been."""

    @property
    def why(self) -> str:
        """The same for all steps that stopped alike: without the numbers of one step."""
        return f"{self.stopped}: {NUMBER.sub('N', self.reason)}" if self.reason else self.stopped


class Speculation(msgspec.Struct, frozen=True):
    steps: list[Step]


decoder = msgspec.json.Decoder(Speculation)


def stops_in(told: Iterable[msgspec.Raw]) -> Counter[str]:
    """Steps by why they stopped. What is of another form has none."""
    found: Counter[str] = Counter()
    for each in told:
        try:
            found.update(step.why for step in decoder.decode(each).steps)
        except msgspec.DecodeError:
            continue
    return found
