"""An HTTP client of either server, and what its tests read of answers."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from served import KEY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from types import TracebackType

    Json = dict[str, Any]

DONE = "[DONE]"
IDLE_SECONDS, REPLACED_SECONDS = 10.0, 30.0


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        found: Json = json.loads(self.body)
        return found


class Sample(NamedTuple):
    name: str
    labels: Mapping[str, str]
    value: float


class Client:
    """`async with Client(url)`. Every request carries the key, unless it has headers of its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def __aenter__(self) -> Client:
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=120)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.session.close()

    async def send(
        self, method: str, path: str, body: Json | bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        given = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"} if headers is None else headers
        async with self.session.request(method, self.url + path, data=data, headers=given) as response:
            return Answer(response.status, response.headers, await response.read())

    async def post(self, path: str, **body: Any) -> Answer:
        return await self.send("POST", path, body)

    async def events(self, path: str, **body: Any) -> AsyncIterator[Json | str]:
        """Of a stream: JSON, or `[DONE]`. Leaving the loop closes the connection."""
        headers = {"Authorization": f"Bearer {KEY}"}
        async with self.session.post(self.url + path, json={**body, "stream": True}, headers=headers) as response:
            assert response.status == 200, await response.text()
            yield {"replica": response.headers.get("X-Specserve-Replica", "")}
            async for line in response.content:
                if line.startswith(b"data: "):
                    data = line.removeprefix(b"data: ").strip().decode()
                    yield data if data == DONE else json.loads(data)

    async def metrics(self) -> list[Sample]:
        answer = await self.send("GET", "/metrics")
        assert answer.status == 200, answer.body
        families = text_string_to_metric_families(answer.body.decode())
        return [Sample(each.name, each.labels, each.value) for family in families for each in family.samples]

    async def total(self, name: str) -> float:
        """Over all replicas."""
        return sum(sample.value for sample in await self.metrics() if sample.name == name)

    async def replica_ids(self) -> set[str]:
        """Of those that are ready."""
        if (await self.send("GET", "/metrics")).status == 503:
            return set()
        labels = [sample.labels for sample in await self.metrics() if sample.name == "vllm:num_requests_running"]
        return {each["replica"] for each in labels}

    async def wait_until_idle(self) -> None:
        async with asyncio.timeout(IDLE_SECONDS):
            while await self.total("vllm:kv_cache_usage_perc") or (await self.send("GET", "/load")).json["server_load"]:
                await asyncio.sleep(0.05)


async def until_replaced(client: Client, before: set[str]) -> set[str]:
    began = time.monotonic()
    async with asyncio.timeout(REPLACED_SECONDS):
        while len(found := await client.replica_ids()) < len(before) or found == before:
            await asyncio.sleep(0.2)
    print(f"replaced after {time.monotonic() - began:.1f} s")
    return found
