"""From the `model` of a request to the base model or an adapter, pinned while the request runs.

Adapters are resolved by plugins. Knows nothing about weights.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from specserve.errors import ModelNotFoundError
from specserve.protocols import ResolvedModel
from specserve_checks.type_words import shown
from specserve_server.errors import GenerationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from specserve_server.engine_client import EngineClient


@asynccontextmanager
async def pinned_model(engine: EngineClient, name: str | None, names: tuple[str, ...]) -> AsyncIterator[ResolvedModel]:
    """The model of that name, pinned until the engine has forgotten every request that was submitted within the block.
    None and the base's `names` are the base model, `base:adapter` is the adapter. Raises ModelNotFoundError."""
    if name is None or name in (*names, engine.model_name):
        yield ResolvedModel(name if name in names else names[0], None, "")
        return
    # in a thread: a plugin may have to read the adapter from disk
    lookup = asyncio.ensure_future(asyncio.to_thread(find_model, engine, name, names))
    try:
        model = await asyncio.shield(lookup)
    except asyncio.CancelledError:
        lookup.add_done_callback(release_unused)
        raise
    try:
        yield model
    finally:
        if model.release is not None:
            engine.after_aborts(model.release)


def release_unused(lookup: asyncio.Future[ResolvedModel]) -> None:
    """The client disconnected before its model was found."""
    if not lookup.cancelled() and lookup.exception() is None:
        model = lookup.result()
        if model.release is not None:
            model.release()


def find_model(engine: EngineClient, name: str, names: tuple[str, ...]) -> ResolvedModel:
    """Looks up the name, then what follows `base:` of one of the base's names."""
    failed: list[str] = []
    bases = (f"{base}:" for base in dict.fromkeys((*names, engine.model_name)))
    for known in (name, *(name.removeprefix(base) for base in bases if name.startswith(base))):
        if not known:
            continue
        model, failed_now = engine.resolve_model(known)
        if model is not None:
            return model
        failed += failed_now
    if failed:
        raise GenerationError(
            f"model {shown(name)} could not be looked up: {' and '.join(failed)} failed; see the log."
        )
    raise ModelNotFoundError(f"no model {shown(name)} is served; /v1/models lists them.", param="model")
