"""Checks of the models that plugins resolve and list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.faults import BadAnswerError
from specserve.namespaces import is_adapter_id
from specserve.protocols import ResolvedModel

if TYPE_CHECKING:
    from collections.abc import Iterable


def check_resolved_model(result: object) -> ResolvedModel:
    if not isinstance(result, ResolvedModel):
        raise BadAnswerError("returned something else than a ResolvedModel")
    texts = isinstance(result.name, str) and isinstance(result.adapter, str) and isinstance(result.parent, str | None)
    if not texts or not is_adapter_id(result.adapter):
        raise BadAnswerError("returned a model whose name, parent or adapter is no text, or holds a NUL")
    if result.release is not None and not callable(result.release):
        raise BadAnswerError("returned a model whose release cannot be called")
    return result


def check_resolved_models(result: Iterable[object]) -> list[ResolvedModel]:
    return [check_resolved_model(model) for model in result]
