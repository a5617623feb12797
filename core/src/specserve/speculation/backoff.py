"""Back-off from drafting, request by request: what its draft tokens saved against what asking the drafters costs.

Asking takes time even when nothing is verified: a part that all asked requests share, as the passes of a draft model,
and a part for each. Requests are asked as long as their draft tokens together save more than that. The others are asked
only at an interval, all in the same steps, so that text which begins to repeat is noticed: the longer an interval, the
costlier it is to ask. Owns these records; knows nothing about drafts or how the savings are measured.
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
"""Steps of grace: of a new request, and of one whose draft saved what asking for it costs."""
DOUBTFUL, DOUBTFUL_GRACE_STEPS = 0.5, 1
"""Steps of a new request where requests like it saved this share of what asking cost; none where they saved less."""
MIN_INTERVAL, MAX_INTERVAL, LONGEST_INTERVAL = 16, 32, 256
"""Steps between two questions while asking does not pay; the interval doubles each time up to the maximum, or further
until asking takes no more than `PROBE_SHARE` of the time."""
PROBE_SHARE = 0.01
TYPICAL_RATE = 0.1
"""Of the moving average over requests that ended."""
COST_DECAY = 0.95
REFERENCE_REQUESTS = 4
"""A step that asks for so many requests corrects both parts of the cost equally."""
SPARE_RECORDS = 64
SLACK = 1e-9
"""Of rounding, where the savings of requests in grace add up to just the cost."""


class TypicalSavings:
    """What draft tokens saved, as a share of what asking for them cost: of the last requests that ended."""

    def __init__(self) -> None:
        self.average, self.count = 0.0, 0

    @property
    def is_known(self) -> bool:
        return self.count >= REFERENCE_REQUESTS

    def add(self, share: float) -> None:
        self.count += 1
        self.average += max(TYPICAL_RATE, 1 / self.count) * (share - self.average)


@dataclass(slots=True)
class RequestRecord:
    typical: TypicalSavings
    saved: float = 0.0
    """Seconds saved in the steps in which the request was asked, an exponentially weighted sum."""
    cost: float = 0.0
    """What asking cost in those steps, likewise."""
    weight: float = 0.0
    """The sum of those weights: saved / weight is an average from the first step on."""
    first_steps: int = FIRST_GRACE_STEPS
    """So many steps more it is asked whatever that saves."""
    grace_steps: int = 0
    """So many steps more it counts as if it saved its share of the cost."""
    interval: int = MIN_INTERVAL

    @property
    def average(self) -> float:
        """Seconds saved per step in which it is asked."""
        return self.saved / self.weight if self.weight else 0.0

    def count_asked(self, cost: float) -> None:
        self.first_steps, self.grace_steps = max(self.first_steps - 1, 0), max(self.grace_steps - 1, 0)
        self.saved *= SAVINGS_DECAY
        self.cost += (1 - SAVINGS_DECAY) * (cost - self.cost)
        self.weight += (1 - SAVINGS_DECAY) * (1 - self.weight)


class AskingCost:
    """Seconds to ask for a number of requests: `fixed` for any, `each` for every one. Learned as steps run."""

    def __init__(self) -> None:
        self.fixed = self.each = 0.0

    def seconds(self, num_asked: int) -> float:
        return self.fixed + self.each * num_asked

    def observe(self, seconds: float, num_asked: int) -> None:
        """An outlier counts as twice the expectation at most."""
        expected = self.seconds(num_asked)
        if not expected:
            self.each = seconds / num_asked
            return
        # a normalised gradient step on both parts
        error = min(seconds, 2 * expected) - expected
        feature = num_asked / REFERENCE_REQUESTS
        rate = (1 - COST_DECAY) / (1 + feature * feature)
        self.fixed = max(0.0, self.fixed + rate * error)
        self.each = max(0.0, self.each + rate * error * feature / REFERENCE_REQUESTS)


class DraftBackoff:
    """Decides in every step for which requests the drafters are called."""

    def __init__(self) -> None:
        self.records: dict[str, RequestRecord] = {}
        self.step = 0
        self.cost = AskingCost()
        self.share = 0.0
        """What asking costs for each request where all of the batch are asked."""
        self.typical: dict[float, TypicalSavings] = {}
        """Of requests of one temperature."""
        self.step_seconds = 0.0
        """Of a plain step; 0 while it is not known."""
        self.num_active = 0
        """Requests that are asked in this step because it pays, or that are new."""
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
        self.share = self.cost.each + self.cost.fixed / max(len(requests), 1)
        records = [self.records.get(request.id) or self.begin(request) for request in requests]
        active = self.paying(records)
        self.num_active = len(active)
        selected, longest = [], 0
        for i, record in enumerate(records):
            if i in active:
                if not record.first_steps:
                    record.interval = MIN_INTERVAL
            elif self.step % record.interval == 0:
                longest = longest or self.longest_interval(len(requests))
                record.interval = min(2 * record.interval, longest)
            else:
                selected.append(False)
                continue
            record.count_asked(self.share)
            selected.append(True)
        self.backed_off, self.backed_off_until = requests, 0
        if requests and not any(selected):
            intervals = {record.interval for record in records}
            self.backed_off_until = min(self.step - self.step % interval + interval for interval in intervals)
        return selected

    def begin(self, request: Request) -> RequestRecord:
        """The record of a new request."""
        typical = self.typical.setdefault(temperature_class(request), TypicalSavings())
        record = self.records[request.id] = RequestRecord(typical)
        if typical.is_known and typical.average < 1.0:
            record.first_steps = DOUBTFUL_GRACE_STEPS if typical.average >= DOUBTFUL else 0
            record.interval = self.longest_interval(1)
        return record

    def longest_interval(self, num_asked: int) -> int:
        """After so many steps even requests that never saved anything are asked."""
        longest, allowed = MAX_INTERVAL, PROBE_SHARE * self.step_seconds
        while allowed and longest < LONGEST_INTERVAL and self.cost.seconds(num_asked) > longest * allowed:
            longest *= 2
        return longest

    def paying(self, records: Sequence[RequestRecord]) -> set[int]:
        """New requests, and those that together save most beyond what asking for them costs."""
        cost, share = self.cost, self.share
        new = {i for i, record in enumerate(records) if record.first_steps}
        others = [
            (max(record.average, share if record.grace_steps else 0.0), i)
            for i, record in enumerate(records)
            if i not in new
        ]
        others.sort(reverse=True)
        net, count = 0.0 if new else -cost.fixed, 0
        best = net if new else -SLACK * share
        for asked, (saved, _) in enumerate(others, 1):
            net += saved - cost.each
            if net >= best:
                best, count = net, asked
        return new | {i for _, i in others[:count]}

    def record_savings(self, request_id: str, seconds: float) -> None:
        """The draft tokens of a step saved `seconds`; negative where they cost more than they saved. A request that
        saved its share is asked once more: its draft tokens may save time now."""
        record = self.records.get(request_id)
        if record is not None:
            record.saved += (1 - SAVINGS_DECAY) * seconds
            self.backed_off_until = 0
            if seconds > 0 and seconds >= self.share:
                self.revive(request_id)

    def revive(self, request_id: str) -> None:
        """Let this request count as if it paid in the next step."""
        record = self.records.get(request_id)
        if record is not None:
            record.grace_steps = max(record.grace_steps, GRACE_STEPS)
            self.backed_off_until = 0

    def forget(self, request_id: str) -> None:
        record = self.records.pop(request_id, None)
        if record is not None and record.cost:
            record.typical.add(record.saved / record.cost)
        self.backed_off_until = 0

    def record_cost(self, seconds: float, num_asked: int) -> None:
        """Asking for `num_asked` requests took `seconds`. Steps that only asked backed-off requests are left out: those
        bring the text of many steps, which the drafters have to read at some time anyway."""
        if self.num_active:
            self.cost.observe(seconds, num_asked)


def temperature_class(request: Request) -> float:
    """Requests whose draft tokens are accepted alike: to the nearest quarter."""
    return round(4 * request.params.temperature) / 4
