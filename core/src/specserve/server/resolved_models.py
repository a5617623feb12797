"""Checks of the models that plugins resolve and list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.faults import BadAnswerError
from specserve.namespaces import is_model_namespace
from specserve.protocols import ResolvedModel

if TYPE_CHECKING:
    from collections.abc import Iterable


def check_resolved_model(answer: object) -> ResolvedModel:
    if not isinstance(answer, ResolvedModel):
        raise BadAnswerError("returned something else than a ResolvedModel")
    texts = isinstance(answer.name, str) and isinstance(answer.namespace, str) and isinstance(answer.parent, str | None)
    if not texts or not is_model_namespace(answer.namespace):
        raise BadAnswerError("returned a model whose name, parent or namespace is no text, or holds a NUL")
    if answer.release is not None and not callable(answer.release):
        raise BadAnswerError("returned a model whose release cannot be called")
    return answer


def check_resolved_models(answer: Iterable[object]) -> list[ResolvedModel]:
    return [check_resolved_model(model) for model in answer]
