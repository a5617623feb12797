"""The synchronous front: requests arrive before their step, some are aborted; every step checks invariants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.failures import Failure
from fuzz.plans import changed
from fuzz.wire import as_request
from specserve.faults import RequestFault

if TYPE_CHECKING:
    from fuzz.building import Built
    from fuzz.fronts.served import Served
    from fuzz.live_adapters import Lease, LiveAdapters
    from fuzz.plans import Plan, RequestPlan
    from specserve.types import RequestOutput

MOST_STEPS = 50_000


class Stepping:
    def __init__(self, plan: Plan, built: Built, adapters: LiveAdapters, served: Served) -> None:
        self.engine, self.adapters, self.served = built.engine, adapters, served
        self.pending: list[RequestPlan] = sorted(plan.requests or (), key=lambda request: request.arrives)
        self.leases: dict[str, Lease] = {}
        self.to_abort: dict[str, int] = {}
        """Running requests by the steps that they still have."""
        self.clock = 0

    def run(self) -> None:
        while self.pending or self.adapters.due or self.engine.has_work:
            self.adapters.advance(self.clock)
            self.admit()
            for output in self.engine.step():
                self.take(output)
            self.engine.check_integrity()
            self.abort_some()
            self.clock += 1
            if self.clock > MOST_STEPS:
                raise Failure("no end", f"after {MOST_STEPS} steps; pending: {[r.id for r in self.pending]}")
        if self.leases:
            raise Failure("request never ended", f"{sorted(self.leases)}")

    def admit(self) -> None:
        for request in [r for r in self.pending if r.arrives <= self.clock]:
            lease = self.adapters.lease(request)
            if lease is None:
                continue  # once more before the next step
            self.pending.remove(request)
            wire = as_request(request, lease.adapter)
            self.engine.check(wire)
            self.served.begin(request, lease.version)
            self.leases[request.id] = lease
            if request.aborted_after is not None:
                self.to_abort[request.id] = request.aborted_after
            try:
                self.engine.add(wire)
            except RequestFault as fault:
                self.take(self.engine.rejected(fault))

    def take(self, output: RequestOutput) -> None:
        self.served.last[output.request_id].result.take(output)
        if output.finish_reason is not None:
            self.release(output.request_id)

    def release(self, request_id: str) -> None:
        self.leases.pop(request_id).end()
        self.to_abort.pop(request_id, None)

    def abort_some(self) -> None:
        for request_id, steps in list(self.to_abort.items()):
            self.to_abort[request_id] = steps - 1
            if steps == 0:
                self.abort(request_id)

    def abort(self, request_id: str) -> None:
        self.engine.abort(request_id)
        self.engine.check_integrity()
        self.release(request_id)
        request, _, result = self.served.last[request_id]
        result.aborted = True
        self.served.counts["aborted"] += 1
        if request.again:
            self.served.counts["again"] += 1
            self.pending.append(changed(request, arrives=self.clock + 1, aborted_after=None))
