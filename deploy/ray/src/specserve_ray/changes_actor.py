"""One actor per application makes changes of adapters and corpora, one after the other, on every replica.

What one replica refuses is undone on the others. The actor outlives the replicas; should its own process end, the next
one gets its log back from a replica.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import ray
from ray import serve
from ray.exceptions import ActorDiedError
from ray.serve.exceptions import DeploymentUnavailableError

from specserve_ray.change_log import ChangeLog, MadeChange
from specserve_ray.change_routes import inverse, read_change
from specserve_ray.changes_wire import Applied, LoggedChanges
from specserve_ray.errors import NONE_READY, error_answer, explained
from specserve_ray.names import NAMESPACE, REPLICAS, actor_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ray.actor import ActorHandle
    from ray.serve.handle import DeploymentHandle

    from specserve_ray.change_routes import Change
    from specserve_ray.wire import ForwardedRequest

logger = logging.getLogger(__name__)
FAILED = "a replica has failed to make this change; its log says why."
TIMEOUT_SECONDS = 120.0
"""How long replicas may take for a change."""


class Outcomes(NamedTuple):
    """Of a call of every replica."""

    answers: list[Any]
    """What the method returns, by those that returned."""
    num_failed: int


class Changes:
    """Its public methods are called from other processes."""

    def __init__(self, replicas: DeploymentHandle) -> None:
        self.replicas = replicas
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
            made = MadeChange(self.log.number + 1, change)
            outcomes = await self.on_all("change", request, made)
            if outcomes is None:
                return Applied(error_answer(NONE_READY, request.path), self.log.number)
            accepted = [answer for answer in outcomes.answers if 200 <= answer.head.status < 300]
            refused = [answer for answer in outcomes.answers if answer not in accepted]
            if accepted and not refused and not outcomes.num_failed:
                self.log.add(made)
                return Applied(accepted[0], self.log.number)
            answer = refused[0] if refused else error_answer(FAILED, request.path)
            if accepted or outcomes.num_failed:
                answer = explained(answer, await self.undo(change))
            return Applied(answer, self.log.number)

    async def on_all(self, method: str, *arguments: object) -> Outcomes | None:
        """What every replica that is ready says. None where there is none, or where those that were there have died."""
        try:
            asked = self.replicas.broadcast(method, *arguments)
            results = await asked.results_async(timeout_s=TIMEOUT_SECONDS, return_exceptions=True)
        except DeploymentUnavailableError:
            return None
        except TimeoutError as error:
            results = [error]
        living = [each for each in results if not isinstance(each, ActorDiedError)]
        failed = [each for each in living if isinstance(each, BaseException)]
        for each in failed:
            logger.error("%s: a replica has failed: %s", method, each)
        return Outcomes([each for each in living if each not in failed], len(failed)) if living else None

    async def undo(self, change: Change) -> str:
        """A sentence about it."""
        undoing = inverse(change, self.log.last(change.what))
        outcomes = await self.on_all("undo", undoing)
        if outcomes is None or (all(outcomes.answers) and not outcomes.num_failed):
            return "It was undone on the replicas that had accepted it."
        return "It could not be undone on all replicas that had accepted it: replace them, by an update."


def find_changes(app_name: str) -> ActorHandle:
    """The application's; made where there is none yet."""
    kind = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, max_concurrency=1000)(Changes)
    made = kind.options(name=actor_name(app_name), namespace=NAMESPACE, lifetime="detached", get_if_exists=True)
    return made.remote(serve.get_deployment_handle(REPLICAS, app_name))
