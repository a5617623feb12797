"""Loading and unloading over HTTP, with the bodies and the answers of vLLM. Errors are raised: the server's middleware
answers them in OpenAI's format.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from specserve_lora.adapter_dir import confined_dir, require_root
from specserve_lora.errors import AdapterError
from specserve_server.operation import TEXT, Answer, Operation, describe
from specserve_server.wire.decode_body import decode_body

if TYPE_CHECKING:
    from pathlib import Path

    from specserve_lora.store import AdapterStore
    from specserve_server.engine_client import ServedEngine

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
CHANGED = (Answer(content={TEXT: str}, description="A sentence that says so"),)
ABORT_TIMEOUT_SECONDS = 10.0
"""How long an unload waits for the engine to drop aborted requests."""


class LoadBody(msgspec.Struct, frozen=True, kw_only=True):
    """POST /v1/load_lora_adapter."""

    lora_name: str | None = None
    lora_path: str | None = None
    load_inplace: bool | None = None


class UnloadBody(msgspec.Struct, frozen=True, kw_only=True):
    """POST /v1/unload_lora_adapter."""

    lora_name: str | None = None


class AdapterRoutes:
    """Blocking calls run in a thread, so that the event loop never waits for a disk."""

    def __init__(self, store: AdapterStore, root: Path | None, engine: ServedEngine) -> None:
        self.store, self.root, self.engine = store, root, engine

    def add_to(self, app: web.Application) -> None:
        app.add_routes([web.post(LOAD, self.load), web.post(UNLOAD, self.unload)])

    @describe(
        Operation(
            summary="Load an adapter, or replace one",
            tag="adapters",
            body=LoadBody,
            required=("lora_name", "lora_path"),
            answers=CHANGED,
            errors=(403, 409),
        )
    )
    async def load(self, request: web.Request) -> web.Response:
        require_root(self.root)
        body = decode_body(await request.read(), LoadBody)
        name, path = required(body.lora_name, "lora_name"), required(body.lora_path, "lora_path")
        await asyncio.to_thread(self.load_from, name, path, bool(body.load_inplace))
        return web.Response(text=f"Success: LoRA adapter '{name}' added successfully.")

    def load_from(self, name: str, path: str, replace: bool) -> None:
        self.store.load(name, confined_dir(path, self.root), replace=replace)

    @describe(
        Operation(
            summary="Unload an adapter that no request uses",
            tag="adapters",
            body=UnloadBody,
            required=("lora_name",),
            answers=CHANGED,
            errors=(403, 404, 409),
        )
    )
    async def unload(self, request: web.Request) -> web.Response:
        require_root(self.root)
        name = required(decode_body(await request.read(), UnloadBody).lora_name, "lora_name")
        aborted = threading.Event()
        self.engine.after_aborts(aborted.set)
        await asyncio.to_thread(self.unload_after, aborted, name)
        return web.Response(text=f"Success: LoRA adapter '{name}' removed successfully.")

    def unload_after(self, aborted: threading.Event, name: str) -> None:
        """When `aborted` is set, every request that ended before has released its pin."""
        aborted.wait(ABORT_TIMEOUT_SECONDS)
        self.store.unload(name)


def required(value: str | None, param: str) -> str:
    if not value:
        raise AdapterError(f"{param} is required.", param=param)
    return value
