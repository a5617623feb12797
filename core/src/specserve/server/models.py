"""Which model a request names, and the list of all of them.

Owns the names: the served one (with the engine's own as its root) and those that plugins resolve, pinned for
as long as a request runs. Knows nothing about adapters.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from specserve.errors import ModelNotFoundError
from specserve.protocols import ResolvedModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from specserve.server.contract import ServedEngine

OWNER = "specserve"
SALT_MARK = "\0"
"""A namespace is the resolved model's, then, where a cache salt is given, this mark and the salt."""


@asynccontextmanager
async def lease_model(engine: ServedEngine, name: str | None, base: str) -> AsyncIterator[ResolvedModel]:
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


def find(engine: ServedEngine, name: str, base: str) -> ResolvedModel:
    resolved = resolve(engine, name)
    prefix, _, rest = name.partition(":")
    if resolved is None and rest and prefix in (base, engine.model_name):
        resolved = resolve(engine, rest)
    if resolved is None:
        raise ModelNotFoundError(
            f"no model {name!r} is served; /v1/models lists them.", param="model", code="model_not_found"
        )
    return resolved


def resolve(engine: ServedEngine, name: str) -> ResolvedModel | None:
    """The first plugin's answer; the pins of any others are undone."""
    found: ResolvedModel | None = None
    for _, answer in engine.plugins.collect("resolve_model", name=name):
        if answer is None:
            continue
        if found is None:
            found = answer
        elif answer.release is not None:
            answer.release()
    return found


def namespace_of(model: ResolvedModel, salt: str | None) -> str:
    """Injective: a model's namespace never holds the mark."""
    return model.namespace if salt is None else f"{model.namespace}{SALT_MARK}{salt}"


def list_models(engine: ServedEngine, base: str) -> list[dict[str, Any]]:
    cards = [model_card(engine, base, engine.model_name, None)]
    for _, models in engine.plugins.collect("list_models"):
        cards += [model_card(engine, model.name, model.name, model.parent or base) for model in models or ()]
    return cards


def model_card(engine: ServedEngine, name: str, root: str, parent: str | None) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": engine.created,
        "owned_by": OWNER,
        "root": root,
        "parent": parent,
        "max_model_len": engine.max_model_len,
    }
