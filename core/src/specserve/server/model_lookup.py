"""Which model a request names, and the list of all of them.

Owns the names: the served one (with the engine's own as its root) and those that plugins resolve, pinned for
as long as a request runs. Knows nothing about adapters.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from specserve.errors import ModelNotFoundError
from specserve.faults import BadAnswerError
from specserve.namespaces import is_model_namespace
from specserve.protocols import ResolvedModel
from specserve.server.errors import GenerationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from specserve.server.engine_client import EngineClient

OWNER = "specserve"


@asynccontextmanager
async def lease_model(engine: EngineClient, name: str | None, base: str) -> AsyncIterator[ResolvedModel]:
    """The model of that name, pinned until the engine has forgotten every request that was submitted within the block.
    None and the base's names are the base model, `base:adapter` is the adapter. Raises ModelNotFoundError."""
    if name is None or name in (base, engine.model_name):
        yield ResolvedModel(base, None, "")
        return
    # a plugin may have to read the adapter from disk
    finding = asyncio.ensure_future(asyncio.to_thread(find, engine, name, base))
    try:
        resolved = await asyncio.shield(finding)
    except asyncio.CancelledError:
        finding.add_done_callback(let_go)
        raise
    try:
        yield resolved
    finally:
        if resolved.release is not None:
            engine.after_aborts(resolved.release)


def let_go(finding: asyncio.Future[ResolvedModel]) -> None:
    """The client left before its model was found: nobody will use the pin."""
    if not finding.cancelled() and finding.exception() is None:
        found = finding.result()
        if found.release is not None:
            found.release()


def find(engine: EngineClient, name: str, base: str) -> ResolvedModel:
    """The first plugin's answer, for the name or for what follows `base:`."""
    prefix, _, rest = name.partition(":")
    failed: list[str] = []
    for known in (name, rest if prefix in (base, engine.model_name) else ""):
        resolved = resolve(engine, known, failed) if known else None
        if resolved is not None:
            return resolved
    if failed:
        raise GenerationError(f"model {name!r} could not be looked up: {' and '.join(failed)} failed; see the log.")
    raise ModelNotFoundError(
        f"no model {name!r} is served; /v1/models lists them.", param="model", code="model_not_found"
    )


def resolve(engine: EngineClient, name: str, failed: list[str]) -> ResolvedModel | None:
    """The first plugin's answer; the pins of any others are undone. Plugins that failed are added to `failed`."""
    asked = engine.plugins.ask("resolve_model", a_model, name=name)
    failed += asked.failed
    found: ResolvedModel | None = None
    for plugin, answer in asked.found:
        release = None
        if answer.release is not None:
            release = engine.plugins.contained(plugin, "release of a model", answer.release)
        if found is None:
            found = msgspec.structs.replace(answer, release=release)
        elif release is not None:
            release()
    return found


def list_models(engine: EngineClient, base: str) -> list[dict[str, Any]]:
    cards = [model_card(engine, base, engine.model_name, None)]
    for _, models in engine.plugins.ask("list_models", models_of).found:
        cards += [model_card(engine, model.name, model.name, model.parent or base) for model in models]
    return cards


def a_model(answer: Any) -> ResolvedModel:
    """The answer of a plugin, held to its contract."""
    if not isinstance(answer, ResolvedModel):
        raise BadAnswerError("returned something else than a ResolvedModel")
    texts = isinstance(answer.name, str) and isinstance(answer.namespace, str) and isinstance(answer.parent, str | None)
    if not texts or not is_model_namespace(answer.namespace):
        raise BadAnswerError("returned a model whose name, parent or namespace is no text, or holds a NUL")
    if answer.release is not None and not callable(answer.release):
        raise BadAnswerError("returned a model whose release cannot be called")
    return answer


def models_of(answer: Any) -> list[ResolvedModel]:
    return [a_model(model) for model in answer]


def model_card(engine: EngineClient, name: str, root: str, parent: str | None) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": engine.created,
        "owned_by": OWNER,
        "root": root,
        "parent": parent,
        "max_model_len": engine.max_model_len,
    }
