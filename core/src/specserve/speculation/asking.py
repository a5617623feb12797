"""Whether asking for guesses pays, request by request: what they saved, held against what asking costs.

Asking takes time even where nothing is verified. A request whose guesses saved less than that is asked in some
steps only, all such requests in the same ones, so that text which begins to repeat is noticed. Owns these
records; knows nothing of drafts or of how the savings are found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.request import Request

MEMORY = 0.9
"""Of what asking saved, per step asked."""
FIRST_PATIENCE, PATIENCE = 4, 1
"""Steps in which a request is asked whatever that saves: a new one, and one of whose guesses something came true."""
SHORT_REST, LONG_REST = 16, 32
"""Steps from one asking to the next where it does not pay: twice as many each time that it did not, up to the long."""
COST_MEMORY = 0.95
SPARE_RECORDS = 64


@dataclass(slots=True)
class Record:
    saved: float = 0.0
    """Seconds in the steps asked, the older the lighter."""
    weight: float = 0.0
    """Of those steps: `saved` by it is a moving average, of a new request too."""
    patience: int = FIRST_PATIENCE
    rest: int = SHORT_REST


class Asking:
    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.turn = 0
        self.seconds = 0.0
        """What asking one request costs, a moving average."""
        self.num_awake = 0
        """Requests that are asked in every step, this one included."""
        self.resting: Sequence[Request] = ()
        self.resting_until = 0
        """None of these requests is asked before this turn."""

    def whom(self, requests: Sequence[Request]) -> list[bool]:
        """Call once per step: a request that is asked must save again what asking costs."""
        self.turn += 1
        if self.turn < self.resting_until and requests == self.resting:
            return [False] * len(requests)
        if len(self.records) > 2 * len(requests) + SPARE_RECORDS:  # requests that ended unseen
            self.records = {r.id: self.records[r.id] for r in requests if r.id in self.records}
        self.num_awake = 0
        asked = [self.is_asked(request.id) for request in requests]
        self.resting, self.resting_until = requests, 0
        if requests and not any(asked):
            rests = {self.records[request.id].rest for request in requests}
            self.resting_until = min(self.turn - self.turn % rest + rest for rest in rests)
        return asked

    def is_asked(self, request_id: str) -> bool:
        record = self.records.get(request_id)
        if record is None:
            record = self.records[request_id] = Record()
        if record.patience or record.saved >= self.seconds * record.weight:
            record.patience = max(record.patience - 1, 0)
            record.rest = SHORT_REST
            self.num_awake += 1
        elif self.turn % record.rest:
            return False
        else:
            record.rest = min(2 * record.rest, LONG_REST)
        record.saved *= MEMORY
        record.weight += (1 - MEMORY) * (1 - record.weight)
        return True

    def credit(self, request_id: str, seconds: float) -> None:
        """The guesses of a step saved so much; less than nothing where they cost more than they brought."""
        record = self.records.get(request_id)
        if record is not None:
            record.saved += (1 - MEMORY) * seconds
            self.resting_until = 0

    def hope(self, request_id: str) -> None:
        """There is reason to ask this request again."""
        record = self.records.get(request_id)
        if record is not None:
            record.patience = max(record.patience, PATIENCE)
            self.resting_until = 0

    def forget(self, request_id: str) -> None:
        self.records.pop(request_id, None)
        self.resting_until = 0

    def cost(self, seconds: float, num_asked: int) -> None:
        """Asking so many took so long. One that something else held up counts as twice the average at most; those who
        rested are left out, since they bring the text of many steps, which has to be taken in at some time anyway."""
        if not self.num_awake:
            return
        own = seconds / num_asked
        if self.seconds:
            own = min(own, 2 * self.seconds)
        self.seconds = own if not self.seconds else self.seconds + (1 - COST_MEMORY) * (own - self.seconds)
