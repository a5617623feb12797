"""The list of models as OpenAI's clients read it: the base model, then the adapters that plugins list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_server.operations.answers import ModelCard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.engine_client import EngineClient

OWNER = "specserve"


def list_models(engine: EngineClient, names: Sequence[str]) -> list[ModelCard]:
    """`names` of the base model; the first is the parent of adapters. Not in the event loop."""
    cards = [model_card(engine, name, engine.model_name, None) for name in names]
    added = [model_card(engine, model.name, model.name, model.parent or names[0]) for model in engine.list_models()]
    return cards + added


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
