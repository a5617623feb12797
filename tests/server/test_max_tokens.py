"""What docs/server.md says of `max_tokens` beyond the rest of the context, over a real engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp.test_utils import TestClient, TestServer

from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve_server.app.application import make_app
from specserve_server.config import ServerConfig
from specserve_workbench.testing.engines import DEFAULTS

if TYPE_CHECKING:
    from pathlib import Path

CONTEXT = 48
USER = [{"role": "user", "content": "a"}]
FREE = {"temperature": 0, "ignore_eos": True}
MANY = 2**31 - 1


async def test_an_answer_ends_where_the_context_does_whatever_max_tokens_says(toy_model: Path) -> None:
    config = EngineConfig(model=str(toy_model), **DEFAULTS | {"max_model_len": CONTEXT})
    engine = await AsyncEngine.start(config)
    async with TestClient(TestServer(make_app(engine, ServerConfig()))) as client:
        for max_tokens in (CONTEXT, MANY, None):
            body = {"messages": USER, "max_tokens": max_tokens, **FREE}
            answer = await post(client, "/v1/chat/completions", body)
            assert (answer["usage"]["total_tokens"], answer["choices"][0]["finish_reason"]) == (CONTEXT, "length")
        answer = await post(client, "/v1/completions", {"prompt": "a", "max_tokens": MANY, **FREE})
        assert (answer["usage"]["total_tokens"], answer["choices"][0]["finish_reason"]) == (CONTEXT, "length")
        answer = await post(client, "/v1/responses", {"input": "a", "max_output_tokens": MANY, "temperature": 0})
        assert (answer["usage"]["total_tokens"], answer["status"]) == (CONTEXT, "incomplete")
        answer = await post(client, "/v1/messages", {"messages": USER, "max_tokens": MANY, "temperature": 0})
        counts = answer["usage"]
        total = counts["input_tokens"] + counts["cache_read_input_tokens"] + counts["output_tokens"]
        assert (total, answer["stop_reason"]) == (CONTEXT, "max_tokens")


async def post(client: Any, path: str, body: dict[str, Any]) -> Any:
    response = await client.post(path, json=body)
    assert response.status == 200, await response.text()
    return await response.json()
