"""Who answers a request: one replica, all of them together, or the actor that changes them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from msgspec.structs import replace
from ray.exceptions import RayError

from specserve_ray.change_routes import CORPORA, read_change
from specserve_ray.corpora import all_corpora
from specserve_ray.errors import NONE_READY, RESPONSES, error_answer
from specserve_ray.everywhere import all_load, all_metrics, first_refusal
from specserve_ray.forwarding import forward, path_of
from specserve_ray.policies import find_policy
from specserve_ray.prompts import routing_key
from specserve_ray.stored_responses import StoredResponses
from specserve_server.app.middlewares.loading import HEALTH_PATHS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ray.actor import ActorHandle
    from ray.serve.handle import DeploymentHandle

    from specserve_ray.config import Configuration
    from specserve_ray.wire import Answer, ForwardedRequest, Head

POLL_SECONDS = 0.05
UNREACHABLE = "the actor that changes adapters and corpora cannot be reached; try again."


class Answering:
    def __init__(
        self, replicas: DeploymentHandle, changes: ActorHandle, app_name: str, configuration: Configuration
    ) -> None:
        self.replicas, self.changes, self.app_name = replicas, changes, app_name
        self.streams = replicas.options(method_name="stream", stream=True)
        self.configuration = configuration
        self.stored = StoredResponses(replicas)
        self.num_changes = 0
        """Changes that replicas must have made before they answer a client of this ingress."""

    async def answer(self, request: ForwardedRequest) -> AsyncGenerator[Head | bytes, None]:
        """The head, then the body."""
        request = replace(request, changes=self.num_changes)
        whole = await self.answer_of_all(request)
        if whole is not None:
            yield whole.head
            yield whole.body
            return
        async with aclosing(self.answer_of_one(request)) as parts:
            async for part in parts:
                yield part

    async def answer_of_all(self, request: ForwardedRequest) -> Answer | None:
        """None where one replica is enough."""
        path = path_of(request)
        if path in HEALTH_PATHS and self.is_without_replicas():
            return error_answer(NONE_READY, path)
        if read_change(request) is not None:
            return await self.change(request)
        if request.method == "GET" and path == "/metrics":
            return await all_metrics(self.replicas, request, self.app_name)
        if request.method == "GET" and path == "/load":
            return await all_load(self.replicas, request)
        if request.method == "GET" and (path == CORPORA or path.startswith(f"{CORPORA}/")):
            return await all_corpora(self.replicas, request)
        if request.method == "POST" and path in self.configuration.ray.broadcast:
            return await first_refusal(self.replicas, request)
        return None

    async def answer_of_one(self, request: ForwardedRequest) -> AsyncGenerator[Head | bytes, None]:
        if not await self.some_replica():
            answer = error_answer(NONE_READY, path_of(request))
            yield answer.head
            yield answer.body
            return
        path, settings = path_of(request), self.configuration
        key = routing_key(path, request.body, settings.base_names, settings.ray.routing.block_bytes)
        key = replace(key, wanted=await self.stored.holder(request))
        parts = forward(self.streams, replace(request, key=key))
        async with aclosing(self.stored.watched(parts) if path == RESPONSES else parts) as passed, aclosing(parts):
            async for part in passed:
                yield part

    async def some_replica(self) -> bool:
        """Waits for one where none is ready."""
        until = asyncio.get_running_loop().time() + self.configuration.ray.queue_seconds
        while self.is_without_replicas() and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(POLL_SECONDS)
        return not self.is_without_replicas()

    async def change(self, request: ForwardedRequest) -> Answer:
        try:
            applied = await self.changes.apply.options(max_task_retries=0).remote(request)
        except RayError:
            return error_answer(UNREACHABLE, path_of(request))
        self.num_changes = max(self.num_changes, applied.number)
        answer: Answer = applied.answer
        return answer

    def is_without_replicas(self) -> bool:
        """False before anything is known: Serve tells of replicas at the first request."""
        policy = find_policy(self.app_name)
        return policy is not None and not policy.ids
