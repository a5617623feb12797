"""Who answers a request: one replica, all of them together, or the actor that changes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from specserve_ray.forwarding import forward, path_of
from specserve_ray.prompts import routing_key

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ray.actor import ActorHandle
    from ray.serve.handle import DeploymentHandle

    from specserve_ray.config import Configuration
    from specserve_ray.wire import ForwardedRequest, Head


class Answering:
    def __init__(
        self, replicas: DeploymentHandle, changes: ActorHandle, app_name: str, configuration: Configuration
    ) -> None:
        self.replicas, self.changes, self.configuration = replicas, changes, configuration
        self.num_changes = 0
        """Changes that replicas must have made before they answer a client of this ingress."""

    def answer(self, request: ForwardedRequest) -> AsyncGenerator[Head | bytes, None]:
        path = path_of(request)
        key = routing_key(path, request.body, self.configuration.base_names, self.configuration.ray.routing.block_bytes)
        return forward(self.replicas, replace(request, key=key, changes=self.num_changes))
