"""Back-off from drafting, request by request: what its draft tokens saved against what asking the drafters costs.

Asking takes time even when nothing is verified. A request whose draft tokens saved less than that is asked only at an
interval, all such requests in the same steps, so that text which begins to repeat is noticed. Owns these records;
knows nothing about drafts or how the savings are measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.request import Request

SAVINGS_DECAY = 0.9
"""Weight of earlier steps in the moving average of savings, per step in which the request is asked."""
FIRST_GRACE_STEPS, GRACE_STEPS = 4, 1
"""Steps in which a request is asked whatever that saves: a new request, and one that had a draft token accepted."""
MIN_INTERVAL, MAX_INTERVAL = 16, 32
"""Steps between two questions while asking does not pay; the interval doubles each time up to the maximum."""
COST_DECAY = 0.95
SPARE_RECORDS = 64


@dataclass(slots=True)
class RequestRecord:
    saved: float = 0.0
    """Seconds saved in the steps in which the request was asked, an exponentially weighted sum."""
    weight: float = 0.0
    """The sum of those weights: saved / weight is an average from the first step on."""
    grace_steps: int = FIRST_GRACE_STEPS
    interval: int = MIN_INTERVAL


class DraftBackoff:
    """Decides in every step for which requests the drafters are called."""

    def __init__(self) -> None:
        self.records: dict[str, RequestRecord] = {}
        self.step = 0
        self.seconds_per_request = 0.0
        """The cost of asking for one request, a moving average."""
        self.num_active = 0
        """Requests that are asked in every step, this step included."""
        self.backed_off: Sequence[Request] = ()
        self.backed_off_until = 0
        """None of the `backed_off` requests is asked before this step."""

    def select(self, requests: Sequence[Request]) -> list[bool]:
        """Call once per step. A selected request has to save the cost of asking again to stay selected."""
        self.step += 1
        if self.step < self.backed_off_until and requests == self.backed_off:
            return [False] * len(requests)
        if len(self.records) > 2 * len(requests) + SPARE_RECORDS:  # records of requests that have ended
            self.records = {r.id: self.records[r.id] for r in requests if r.id in self.records}
        self.num_active = 0
        selected = [self.is_selected(request.id) for request in requests]
        self.backed_off, self.backed_off_until = requests, 0
        if requests and not any(selected):
            intervals = {self.records[request.id].interval for request in requests}
            self.backed_off_until = min(self.step - self.step % interval + interval for interval in intervals)
        return selected

    def is_selected(self, request_id: str) -> bool:
        record = self.records.get(request_id)
        if record is None:
            record = self.records[request_id] = RequestRecord()
        if record.grace_steps or record.saved >= self.seconds_per_request * record.weight:
            record.grace_steps = max(record.grace_steps - 1, 0)
            record.interval = MIN_INTERVAL
            self.num_active += 1
        elif self.step % record.interval:
            return False
        else:
            record.interval = min(2 * record.interval, MAX_INTERVAL)
        record.saved *= SAVINGS_DECAY
        record.weight += (1 - SAVINGS_DECAY) * (1 - record.weight)
        return True

    def record_savings(self, request_id: str, seconds: float) -> None:
        """The draft tokens of a step saved `seconds`; negative where they cost more than they saved."""
        record = self.records.get(request_id)
        if record is not None:
            record.saved += (1 - SAVINGS_DECAY) * seconds
            self.backed_off_until = 0

    def revive(self, request_id: str) -> None:
        """Select this request in the next step: its draft tokens may save time now."""
        record = self.records.get(request_id)
        if record is not None:
            record.grace_steps = max(record.grace_steps, GRACE_STEPS)
            self.backed_off_until = 0

    def forget(self, request_id: str) -> None:
        self.records.pop(request_id, None)
        self.backed_off_until = 0

    def record_cost(self, seconds: float, num_asked: int) -> None:
        """Asking for `num_asked` requests took `seconds`.

        An outlier counts as twice the average at most. Steps that only asked backed-off requests are left out: those
        bring the text of many steps, which the drafters have to read at some time anyway.
        """
        if not self.num_active:
            return
        each = seconds / num_asked
        if self.seconds_per_request:
            each = min(each, 2 * self.seconds_per_request)
            self.seconds_per_request += (1 - COST_DECAY) * (each - self.seconds_per_request)
        else:
            self.seconds_per_request = each
