"""A client of a server with lora."""

from __future__ import annotations

import asyncio
import json
from typing import Any

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
BODY: dict[str, Any] = {"prompt": "def add(a, b):", "max_tokens": 12, "temperature": 0, "ignore_eos": True}


class Client:
    """A server's client, and the store behind it."""

    def __init__(self, http: Any, store: Any) -> None:
        self.http, self.store = http, store

    async def post(self, path: str, body: Any) -> tuple[int, str]:
        async with self.http.post(path, json=body) as answer:
            return answer.status, await answer.text()

    async def text(self, model: str | None, **fields: Any) -> str:
        status, text = await self.post("/v1/completions", BODY | {"model": model} | fields)
        assert status == 200, text
        choice: dict[str, str] = json.loads(text)["choices"][0]
        return choice["text"]

    async def idle(self) -> None:
        """Pins go when the engine has forgotten the requests, which may be after the answer."""
        async with asyncio.timeout(120):
            while any(self.store.usage().values()):
                await asyncio.sleep(0.002)

    async def refused(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        status, text = await self.post(path, body)
        error: dict[str, Any] = json.loads(text)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return status, error
