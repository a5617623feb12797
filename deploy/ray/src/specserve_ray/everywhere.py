"""Requests that every replica answers, and what their answers are together."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace
from ray.serve.exceptions import DeploymentUnavailableError

from specserve_ray.errors import NONE_READY, error_answer
from specserve_ray.metrics_text import merge_metrics
from specserve_ray.policy_metrics import policy_metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ray.serve.handle import DeploymentHandle

    from specserve_ray.wire import Answer, ForwardedRequest

logger = logging.getLogger(__name__)
TIMEOUT_SECONDS = 10.0
PLAIN_TEXT = (("Content-Type", "text/plain; version=0.0.4; charset=utf-8"),)


class Load(msgspec.Struct):
    """GET /load."""

    server_load: int


async def ask_all(replicas: DeploymentHandle, request: ForwardedRequest) -> Sequence[Answer]:
    """The answers of those that give one in time; empty where no replica is ready."""
    asked = replicas.broadcast("answer", request)
    try:
        results = await asked.results_async(timeout_s=TIMEOUT_SECONDS, return_exceptions=True)
    except (DeploymentUnavailableError, TimeoutError) as error:
        logger.warning("%s %s: the replicas do not answer: %s", request.method, request.path, error)
        return []
    for failed in (each for each in results if isinstance(each, BaseException)):
        logger.warning("%s %s: a replica does not answer: %s", request.method, request.path, failed)
    return [each for each in results if not isinstance(each, BaseException)]


def refusal(answers: Sequence[Answer], path: str) -> Answer | None:
    """What stands for all of them: the first that is no success; None where all succeed."""
    if not answers:
        return error_answer(NONE_READY, path)
    return next((each for each in answers if each.head.status != 200), None)


async def all_metrics(replicas: DeploymentHandle, request: ForwardedRequest, app_name: str) -> Answer:
    """Of every replica under the label `replica`, and those of this router."""
    headers = tuple((name, value) for name, value in request.headers if name.lower() != "accept")
    answers = await ask_all(replicas, replace(request, headers=headers))
    if refused := refusal(answers, request.path):
        return refused
    merged = merge_metrics({each.head.replica: each.body.decode() for each in answers})
    text = merged + policy_metrics(app_name)
    return replace(answers[0], head=replace(answers[0].head, headers=PLAIN_TEXT), body=text.encode())


async def all_load(replicas: DeploymentHandle, request: ForwardedRequest) -> Answer:
    answers = await ask_all(replicas, request)
    if refused := refusal(answers, request.path):
        return refused
    total = sum(msgspec.json.decode(each.body, type=Load).server_load for each in answers)
    return with_body(answers[0], msgspec.json.encode(Load(total)))


async def first_refusal(replicas: DeploymentHandle, request: ForwardedRequest) -> Answer:
    """What all of them do, such as forgetting cached prefixes: a success where all succeed."""
    answers = await ask_all(replicas, request)
    return refusal(answers, request.path) or answers[0]


def with_body(answer: Answer, body: bytes) -> Answer:
    headers = tuple((name, value) for name, value in answer.head.headers if name.lower() != "content-length")
    return replace(answer, head=replace(answer.head, headers=headers), body=body)
