"""The list of models as OpenAI's clients read it: the base model, then the adapters that plugins list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_server.operations.answers import ModelCard
from specserve_server.state.resolved_models import check_resolved_models

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.engine_client import EngineClient

OWNER = "specserve"


def list_models(engine: EngineClient, names: Sequence[str]) -> list[ModelCard]:
    """`names` of the base model; the first is the parent of adapters."""
    cards = [model_card(engine, name, engine.model_name, None) for name in names]
    results, _ = engine.plugins.try_collect("list_models", check_resolved_models)
    for _, models in results:
        cards += [model_card(engine, model.name, model.name, model.parent or names[0]) for model in models]
    return cards


def model_card(engine: EngineClient, name: str, root: str, parent: str | None) -> ModelCard:
    return ModelCard(
        id=name,
        object="model",
        created=engine.created,
        owned_by=OWNER,
        root=root,
        parent=parent,
        max_model_len=engine.max_model_len,
    )
