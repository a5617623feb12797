"""Back-off from drafting, request by request: what its draft tokens save against what asking the drafters costs.

Asking takes time even when nothing is verified: a part that all asked requests share, as the passes of a draft model,
and a part for each. Requests are asked as long as their draft tokens together save more than that. The others are asked
only at an interval, all in the same steps, so that text which begins to repeat is noticed: the longer an interval, the
costlier it is to ask. Owns these decisions; what draft tokens save is expected by `Outcomes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.speculation.outcomes import Outcomes, Prices, TypicalOutcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.request import Request
    from specserve.speculation.outcomes import Typical

FIRST_GRACE_STEPS, GRACE_STEPS = 4, 1
"""Steps of grace: of a new request, and of one whose draft saved what asking for it costs."""
DOUBTFUL, DOUBTFUL_GRACE_STEPS = 0.5, 1
"""Steps of a new request where requests like it saved this share of what asking cost; none where they saved less."""
MIN_INTERVAL, MAX_INTERVAL, LONGEST_INTERVAL = 16, 32, 256
"""Steps between two questions while asking does not pay; the interval doubles each time up to the maximum, or further
until no more than `PROBE_SHARE` of the time is lost by asking."""
PROBE_SHARE = 0.01
EXPONENT = 0.75
COST_DECAY = 0.95
REFERENCE_REQUESTS = 4
"""A step that asks for so many requests corrects both parts of the cost equally."""
SPARE_RECORDS = 64
SLACK = 1e-9
"""Of rounding, where the savings of requests in grace add up to just the cost."""
UNKNOWN_PRICES = Prices(0.0, 0.0)


class RequestRecord:
    """What is known of a request."""

    __slots__ = ("first_steps", "grace_steps", "interval", "outcomes")

    def __init__(self, outcomes: Outcomes, first_steps: int, interval: int) -> None:
        self.outcomes = outcomes
        self.first_steps = first_steps
        """So many steps more it is asked whatever that saves."""
        self.grace_steps = 0
        """So many steps more it counts as if it saved its share of the cost."""
        self.interval = interval

    def asked(self, step: int) -> None:
        self.first_steps, self.grace_steps = max(self.first_steps - 1, 0), max(self.grace_steps - 1, 0)
        self.outcomes.asked(step)


class AskingCost:
    """Seconds to ask for n requests: fixed + more * n ** EXPONENT, since they share passes. Learned as steps run."""

    def __init__(self) -> None:
        self.fixed = self.more = 0.0
        self.num_observed = 0

    def seconds(self, num_asked: int) -> float:
        return self.fixed + self.more * num_asked**EXPONENT if num_asked else 0.0

    def observe(self, seconds: float, num_asked: int) -> None:
        """An outlier counts as twice the expectation at most."""
        self.num_observed += 1
        expected = self.seconds(num_asked)
        if not expected:
            self.more = seconds / num_asked**EXPONENT
            return
        # a normalised gradient step on both parts
        error = min(seconds, 2 * expected) - expected
        feature = (num_asked / REFERENCE_REQUESTS) ** EXPONENT
        rate = max(1 - COST_DECAY, 1 / self.num_observed) / (1 + feature * feature)
        fixed = self.fixed + rate * error
        more = self.more + rate * error * feature / REFERENCE_REQUESTS**EXPONENT
        self.fixed = max(0.0, fixed)
        self.more = max(0.0, more + min(fixed, 0.0) / num_asked**EXPONENT)


class DraftBackoff:
    """Decides in every step for which requests the drafters are called."""

    def __init__(self) -> None:
        self.records: dict[str, RequestRecord] = {}
        self.step = 0
        self.cost = AskingCost()
        self.share = 0.0
        """What asking costs for each request where all of the batch are asked."""
        self.typical = TypicalOutcomes()
        self.prices = UNKNOWN_PRICES
        self.step_seconds = 0.0
        """Of a plain step; 0 while it is not known."""
        self.is_steady = False
        """Whether all requests that are asked in this step were asked in the step before."""
        self.backed_off: Sequence[Request] = ()
        self.backed_off_until = 0
        """None of the `backed_off` requests is asked before this step."""

    def select(self, requests: Sequence[Request], prices: Prices) -> list[bool]:
        """Call once per step. A selected request has to save the cost of asking again to stay selected."""
        self.step += 1
        if self.step < self.backed_off_until and requests == self.backed_off:
            return [False] * len(requests)
        if len(self.records) > 2 * len(requests) + SPARE_RECORDS:  # records of requests that have ended
            self.records = {r.id: self.records[r.id] for r in requests if r.id in self.records}
        self.prices, self.share = prices, self.cost.seconds(len(requests)) / max(len(requests), 1)
        records = [self.records.get(request.id) or self.begin(request, len(requests)) for request in requests]
        active = self.paying(records)
        selected, self.is_steady = [], True
        for i, record in enumerate(records):
            if i in active:
                if not record.first_steps:
                    record.interval = MIN_INTERVAL
            elif self.step % record.interval == 0:
                longest = self.longest_interval(record.outcomes.typical, len(requests))
                record.interval = min(2 * record.interval, longest)
            else:
                selected.append(False)
                continue
            self.is_steady = self.is_steady and record.outcomes.asked_at == self.step - 1
            record.asked(self.step)
            selected.append(True)
        self.backed_off, self.backed_off_until = requests, 0
        if requests and not any(selected):
            intervals = {record.interval for record in records}
            self.backed_off_until = min(self.step - self.step % interval + interval for interval in intervals)
        return selected

    def begin(self, request: Request, num_requests: int) -> RequestRecord:
        """The record of a new request, one of so many."""
        typical, first_steps, interval = self.typical.of(request), FIRST_GRACE_STEPS, MIN_INTERVAL
        if typical.is_known and (saved := typical.saved(self.prices)) < self.share:
            first_steps = DOUBTFUL_GRACE_STEPS if saved >= DOUBTFUL * self.share else 0
            interval = self.longest_interval(typical, num_requests)
        record = self.records[request.id] = RequestRecord(Outcomes(typical), first_steps, interval)
        return record

    def longest_interval(self, typical: Typical, num_asked: int) -> int:
        """After so many steps even requests that never saved anything are asked."""
        longest, allowed = MAX_INTERVAL, PROBE_SHARE * self.step_seconds
        lost = self.share - max(0.0, typical.saved(self.prices)) if typical.is_known else self.share
        while allowed and longest < LONGEST_INTERVAL and lost * num_asked > longest * allowed:
            longest *= 2
        return longest

    def paying(self, records: Sequence[RequestRecord]) -> set[int]:
        """New requests, and those that together save most beyond what asking for them costs."""
        cost, share = self.cost, self.share
        new = {i for i, record in enumerate(records) if record.first_steps}
        others = [
            (max(record.outcomes.expected(self.prices, self.step, share), share if record.grace_steps else 0.0), i)
            for i, record in enumerate(records)
            if i not in new
        ]
        others.sort(reverse=True)
        before = cost.seconds(len(new))
        best, saved_by_all, count = -SLACK * share, 0.0, 0
        for asked, (saved, _) in enumerate(others, 1):
            saved_by_all += saved
            net = saved_by_all - (cost.seconds(len(new) + asked) - before)
            if net >= best:
                best, count = net, asked
        return new | {i for _, i in others[:count]}

    def record(self, request_id: str, accepted: int, verified: int) -> None:
        """So many of a request's verified draft tokens were accepted. A request whose draft saved what asking for it
        costs is asked once more: its draft tokens may save time now."""
        record = self.records.get(request_id)
        if record is not None:
            record.outcomes.add(accepted, verified)
            self.backed_off_until = 0
            saved = self.prices.saved(accepted, verified)
            if saved > 0 and saved >= self.share:
                self.revive(request_id)

    def was_right(self, request_id: str, depth: int) -> None:
        """The first token of a draft was right that was not verified: such a draft may save time after all, unless even
        one of `depth` right tokens saves less than asking for it costs."""
        saved = self.prices.saved(depth, depth)
        if saved > 0 and saved >= self.share:
            self.revive(request_id)

    def take_back(self, request_id: str) -> None:
        """There was no room to verify what was drafted for this request."""
        record = self.records.get(request_id)
        if record is not None and record.outcomes.num_asked:
            record.outcomes.take_back()

    def revive(self, request_id: str) -> None:
        """Let this request count as if it paid in the next step."""
        record = self.records.get(request_id)
        if record is not None:
            record.grace_steps = max(record.grace_steps, GRACE_STEPS)
            self.backed_off_until = 0

    def forget(self, request_id: str) -> None:
        self.records.pop(request_id, None)
        self.backed_off_until = 0

    def record_cost(self, seconds: float, num_asked: int) -> None:
        """Asking for `num_asked` requests took `seconds`. Steps that asked for requests after a pause are left out:
        those bring the text of many steps, which the drafters have to read at some time anyway."""
        if self.is_steady:
            self.cost.observe(seconds, num_asked)
