"""One actor per application makes changes of adapters and corpora, one after the other, on every replica.

What one replica refuses is undone on the others. The actor outlives the replicas; should its own process end, the next
one gets its log back from a replica.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import ray
from ray import serve
from ray.exceptions import ActorDiedError

from specserve_ray.change_log import ChangeLog, MadeChange
from specserve_ray.change_routes import inverse, read_change
from specserve_ray.changes_wire import Applied, LoggedChanges
from specserve_ray.errors import NONE_READY, error_answer, explained
from specserve_ray.names import NAMESPACE, REPLICAS, actor_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ray.actor import ActorHandle

    from specserve_ray.change_routes import Change
    from specserve_ray.wire import Answer, ForwardedRequest

TIMEOUT_SECONDS = 120.0
"""How long replicas may take for a change."""


class Changes:
    """Its public methods are called from other processes."""

    def __init__(self, app_name: str) -> None:
        self.replicas = serve.get_deployment_handle(REPLICAS, app_name)
        self.log = ChangeLog()
        self.lock = asyncio.Lock()
        """Held while a change is made."""

    async def since(self, number: int) -> LoggedChanges:
        return LoggedChanges(self.log.number, tuple(self.log.since(number)))

    async def restore(self, made: Sequence[MadeChange]) -> None:
        """What a replica knows; ignored unless it is newer."""
        for each in made:
            self.log.add(each)

    async def apply(self, request: ForwardedRequest) -> Applied:
        """Not to be retried, as the other calls are. The answer is a replica's. Where one refuses, its answer, with a
        sentence about the others."""
        change = read_change(request)
        assert change is not None
        async with self.lock:
            answers = await self.on_all(request, MadeChange(self.log.number + 1, change))
            if not answers:
                return Applied(error_answer(NONE_READY, request.path), self.log.number)
            refused = [answer for answer in answers if not 200 <= answer.head.status < 300]
            if not refused:
                self.log.add(MadeChange(self.log.number + 1, change))
                return Applied(answers[0], self.log.number)
            if len(refused) == len(answers):
                return Applied(refused[0], self.log.number)
            said = await self.undo(change, len(answers) - len(refused))
            return Applied(explained(refused[0], said), self.log.number)

    async def on_all(self, request: ForwardedRequest, made: MadeChange) -> Sequence[Answer]:
        """Of every replica that is ready and lives."""
        results = await self.replicas.broadcast("change", request, made).results_async(
            timeout_s=TIMEOUT_SECONDS, return_exceptions=True
        )
        died = [each for each in results if isinstance(each, ActorDiedError)]
        failed = [each for each in results if isinstance(each, BaseException) and each not in died]
        answers: list[Answer] = [each for each in results if not isinstance(each, BaseException)]
        return answers + [error_answer(f"a replica has failed: {each}", request.path) for each in failed]

    async def undo(self, change: Change, num_made: int) -> str:
        """A sentence about it."""
        undoing = inverse(change, self.log.last(change.what))
        results = await self.replicas.broadcast("undo", undoing).results_async(
            timeout_s=TIMEOUT_SECONDS, return_exceptions=True
        )
        if undoing is not None and all(result is True for result in results):
            return f"It was undone on {num_made} other replicas that had accepted it."
        return f"It could not be undone on all of the {num_made} other replicas that had accepted it: replace them."


def find_changes(app_name: str) -> ActorHandle:
    """The application's; made where there is none yet."""
    kind = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, max_concurrency=1000)(Changes)
    return kind.options(name=actor_name(app_name), namespace=NAMESPACE, lifetime="detached", get_if_exists=True).remote(
        app_name
    )
