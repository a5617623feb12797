"""The whole server with ngram: the commands of docs/ngram.md, a corpus over HTTP, control per request."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from both_forms import FORMS, in_form
from specserve.config import EngineConfig
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.engine.async_engine import AsyncEngine
from specserve.hookspecs import hookimpl
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_server.app.application import make_app
from specserve_server.config import ServerConfig
from specserve_workbench.testing.engines import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DOCS = (Path(__file__).parents[2] / "docs" / "ngram.md").read_text()
CAPITALS = list(range(32, 58))
SPOKEN: dict[str, Any] = {"prompt": "x", "max_tokens": 60, "seed": 5, "allowed_token_ids": CAPITALS, "cache_salt": "a"}


class Everything:
    """Verifies whatever is drafted, so that counts do not depend on the machine's speed."""

    @hookimpl
    def make_draft_planner(self) -> FixedWidthPlanner:
        return FixedWidthPlanner(32)


@pytest.fixture(params=FORMS)
async def client(toy_model: Path, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    (tmp_path / "handbook.jsonl").write_text('"first things first"\n')
    options = {"ngram": {"corpus_root": str(tmp_path)}}
    config = EngineConfig(model=str(toy_model), plugins=("ngram",), plugin_options=options, **DEFAULTS)
    declaration = PluginDeclaration(name="everything", provides={"planner.adaptive": "a test's planner"})
    extra = {"everything": InProcessPlugin(Everything(), declaration)}
    engine = await AsyncEngine.start(config, extra=extra)
    async with (
        in_form(request.param, engine, ServerConfig()) as attached,
        TestClient(TestServer(make_app(attached, ServerConfig()))) as client,
    ):
        yield client


def curls() -> list[tuple[str, str, Any]]:
    """(method, path, body) of every curl command of the page."""
    commands = []
    for block in re.findall(r"^```sh\n(.*?)^```", DOCS, flags=re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            words = shlex.split(line)
            if words[0] != "curl":
                continue
            url = next(word for word in words if word.startswith("http://127.0.0.1:8000"))
            body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
            method = words[words.index("-X") + 1] if "-X" in words else "GET" if body is None else "POST"
            commands.append((method, url.removeprefix("http://127.0.0.1:8000"), body))
    return commands


async def complete(client: Any, body: dict[str, Any]) -> dict[str, Any]:
    answer = await client.post("/v1/completions", json=body)
    assert answer.status == 200, await answer.text()
    decoded: dict[str, Any] = await answer.json()
    return decoded


def accepted(answer: dict[str, Any]) -> int:
    count: int = answer["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"]
    return count


async def test_the_commands_of_the_page_are_served(client: Any) -> None:
    assert len(curls()) == 8
    for method, path, body in curls():
        answer = await client.request(method, path, json=body)
        assert answer.status in (200, 202), await answer.text()


async def test_a_corpus_over_http_is_drafted_from_whatever_the_namespace(client: Any) -> None:
    first = await complete(client, SPOKEN)
    text = first["choices"][0]["text"]
    assert (await client.post("/v1/ngram/corpora", json={"name": "said", "documents": [text]})).status == 202
    while (await (await client.get("/v1/ngram/corpora/said")).json())["state"] == "loading":
        await asyncio.sleep(0.01)
    again = await complete(client, SPOKEN | {"cache_salt": "b"})
    assert again["choices"][0]["text"] == text
    assert accepted(again) > 40
    assert 'specserve_ngram_corpora{state="ready"} 1.0' in await (await client.get("/metrics")).text()
    assert (await client.delete("/v1/ngram/corpora/said")).status == 200
    assert accepted(await complete(client, SPOKEN | {"cache_salt": "c"})) < 20


async def test_text_is_shared_within_a_namespace_only(client: Any) -> None:
    first, same, other = [await complete(client, SPOKEN | {"cache_salt": salt}) for salt in ("a", "a", "b")]
    assert accepted(same) > 40
    assert max(accepted(first), accepted(other)) < 20


async def test_a_request_controls_its_own_speculation(client: Any) -> None:
    await complete(client, SPOKEN)
    plain = await complete(client, SPOKEN | {"speculation": {"enabled": False}})
    narrow = await complete(client, SPOKEN | {"speculation": {"max_draft_tokens": 2}})
    assert "metrics" not in plain
    assert narrow["choices"][0]["text"] == plain["choices"][0]["text"]
    assert len(narrow["metrics"]["speculative_decoding"]["acceptance_histogram"]) == 3
