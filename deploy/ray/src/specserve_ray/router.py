"""The policy as Ray Serve's request router: from Serve's replicas and requests to ids, and back.

Serve makes one in each process that sends requests to the replicas, and calls it in a thread of its own.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import msgspec
from ray.serve.request_router import RequestRouter

from specserve_ray.policies import keep_policy
from specserve_ray.policy import Policy
from specserve_ray.policy_options import PolicyOptions
from specserve_ray.replica_stats import from_table
from specserve_ray.wire import ForwardedRequest, RoutingKey

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from ray.serve.request_router import PendingRequest, ReplicaID, RunningReplica


class PolicyRouter(RequestRouter):  # type: ignore[misc]  # Ray may not be installed
    def initialize_state(self, **options: object) -> None:
        self.policy = Policy(msgspec.convert(options, PolicyOptions), Random())
        self.by_id: dict[str, RunningReplica] = {}
        keep_policy(self.app_name, self.policy)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Called when replicas come, go or report."""
        super().update_replicas(replicas)
        self.by_id = {each.replica_id.unique_id: each for each in replicas}
        self.policy.update({each.replica_id.unique_id: from_table(each.routing_stats) for each in replicas})

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """The policy's choice, then any: Serve takes the first rank that accepts the request."""
        key = key_of(pending_request)
        best = self.policy.choose(key).replica
        if pending_request is not None:
            self.hold(pending_request, best)
        return [[self.by_id[best]], candidate_replicas]

    def hold(self, pending: PendingRequest, replica: str) -> None:
        """At once, so that requests which come together do not all choose by the same loads."""
        request = pending.metadata.internal_request_id
        self.policy.hold(request, replica, key_of(pending))

        def release_if_cancelled(future: asyncio.Future[object]) -> None:
            if future.cancelled():  # Serve tells of the end of requests that were sent only
                self.policy.release(request)

        pending.future.add_done_callback(release_if_cancelled)

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: object) -> None:
        """To another replica, where the first one refused."""
        self.policy.move(pending_request.metadata.internal_request_id, replica_id.unique_id, key_of(pending_request))

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Of requests that were refused, and of broadcasts, which nothing is held for, too."""
        self.policy.release(internal_request_id)

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        super().on_replica_actor_died(replica_id)
        self.policy.drop(replica_id.unique_id)


def key_of(pending: PendingRequest | None) -> RoutingKey:
    arguments: Sequence[object] = () if pending is None else pending.args
    found = (each.key for each in arguments if isinstance(each, ForwardedRequest))
    return next(found, RoutingKey())
