"""The states of n-gram corpora, which every replica loads for itself: a corpus is as far as the last of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from specserve_ray.change_routes import CORPORA
from specserve_ray.everywhere import ask_all, refusal, with_body
from specserve_ray.forwarding import path_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ray.serve.handle import DeploymentHandle

    from specserve_ray.wire import Answer, ForwardedRequest

    Status = dict[str, Any]  # as the plugin writes it

BEST_STATE = "ready"
WORST_STATE = "failed"


async def all_corpora(replicas: DeploymentHandle, request: ForwardedRequest) -> Answer:
    answers = await ask_all(replicas, request)
    if refused := refusal(answers, request.path):
        return refused
    bodies: list[Status] = [msgspec.json.decode(each.body) for each in answers]
    if path_of(request) != CORPORA:
        return with_body(answers[0], msgspec.json.encode(furthest_behind(bodies)))
    by_name: dict[str, list[Status]] = {}
    for body in bodies:
        for status in body["data"]:
            by_name.setdefault(status["name"], []).append(status)
    data = [furthest_behind(each) for each in by_name.values()]
    return with_body(answers[0], msgspec.json.encode({**bodies[0], "data": data}))


def furthest_behind(statuses: Iterable[Status]) -> Status:
    """One that has failed, else one that is not ready, with the least read."""

    def place(status: Status) -> tuple[bool, bool, int]:
        return status["state"] != WORST_STATE, status["state"] == BEST_STATE, status["bytes_read"]

    return min(statuses, key=place)
