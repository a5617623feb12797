"""A server answers the same with its engine in a process of its own as with it in its own process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from toy_adapters import write_adapter

if TYPE_CHECKING:
    from pathlib import Path

    from server_process import ServerProcess

PROMPT = "one two three four, one two three four, one two"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "greedy": ("/v1/completions", {"prompt": PROMPT, "max_tokens": 40, "temperature": 0}),
    "seeded with everything": (
        "/v1/completions",
        {
            "prompt": PROMPT, "max_tokens": 30, "seed": 5, "temperature": 0.9, "top_p": 0.9, "top_k": 50, "min_p": 0.01,
            "frequency_penalty": 0.3, "presence_penalty": 0.1, "repetition_penalty": 1.1, "logit_bias": {"7": 3},
            "stop": ["zzz", "q"], "logprobs": 3, "n": 2, "return_token_ids": True, "bad_words": ["one"],
            "stop_token_ids": [9], "min_tokens": 3, "speculation": {"max_draft_tokens": 3}, "priority": 1,
        },
    ),
    "scored prompt": (
        "/v1/completions", {"prompt": PROMPT, "max_tokens": 0, "echo": True, "logprobs": 1, "prompt_logprobs": 2},
    ),
    "schema": (
        "/v1/completions",
        {"prompt": PROMPT, "max_tokens": 60, "seed": 1, "structured_outputs": {"json": SCHEMA}},
    ),
    "too long": ("/v1/completions", {"prompt": [1] * 5000}),
    "wrong": ("/v1/completions", {"prompt": "a", "top_p": 7}),
    "unknown model": ("/v1/completions", {"prompt": "a", "model": "nobody"}),
    "wrong schema": ("/v1/completions", {"prompt": "a", "structured_outputs": {"json": {"type": "nothing"}}}),
    "huge numbers": ("/v1/completions", {"prompt": "a", "stop_token_ids": [2**70], "seed": 2**70}),
    "unknown path": ("/v1/nothing", {}),
    "an adapter that is not there": ("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "none"}),
    "outside of the root": ("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "/etc"}),
    "tokens": ("/tokenize", {"prompt": "one two", "return_token_strs": True}),
}  # fmt: skip
CHANGING = {"id", "created", "metrics", "system_fingerprint", "planner"}
"""What differs between two answers to one body."""


async def post(server: ServerProcess, path: str, body: dict[str, Any]) -> tuple[int, Any, str | None]:
    async with aiohttp.ClientSession(server.url) as session, session.post(path, json=body) as response:
        content = await (response.json() if response.content_type == "application/json" else response.text())
        return response.status, stable(content), response.headers.get("Retry-After")


def stable(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: stable(value) for name, value in content.items() if name not in CHANGING}
    return [stable(value) for value in content] if isinstance(content, list) else content


@pytest.mark.parametrize("name", BODIES)
async def test_answers_are_the_same(server: ServerProcess, one_process: ServerProcess, name: str) -> None:
    path, body = BODIES[name]
    assert server.engine_pid != server.process.pid
    assert await post(server, path, body) == await post(one_process, path, body)


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/completions", {"prompt": PROMPT}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}]}),
    ],
)
async def test_streams_are_the_same(
    server: ServerProcess, one_process: ServerProcess, path: str, asked: dict[str, Any]
) -> None:
    found = []
    for each in (server, one_process):
        body = {**asked, "max_tokens": 40, "seed": 3, "stream": True, "return_token_ids": True}
        async with aiohttp.ClientSession(each.url) as session, session.post(path, json=body) as response:
            *events, done, _ = (await response.text()).split("\n\n")
        assert done == "data: [DONE]"
        choices = [choice for event in events for choice in json.loads(event.removeprefix("data: "))["choices"]]
        found.append([token for choice in choices for token in choice.get("token_ids") or ()])
    assert len(found[0]) == 40
    assert found[0] == found[1]


async def test_an_adapter_that_is_loaded_over_http_serves(server: ServerProcess, toy_model: Path) -> None:
    write_adapter(server.log.parent / "tuned", toy_model, seed=3, size=0.6)
    body = {"prompt": PROMPT, "max_tokens": 20, "temperature": 0}
    base = await post(server, "/v1/completions", body)
    loaded = await post(server, "/v1/load_lora_adapter", {"lora_name": "tuned", "lora_path": "tuned"})
    assert loaded[:2] == (200, "Success: LoRA adapter 'tuned' added successfully.")
    tuned = await post(server, "/v1/completions", {**body, "model": "tuned"})
    assert tuned[0] == 200
    assert tuned[1]["choices"][0]["text"] != base[1]["choices"][0]["text"]
    async with aiohttp.ClientSession(server.url) as session:
        async with session.get("/v1/models") as response:
            assert [model["id"] for model in (await response.json())["data"]][1:] == ["tuned"]
        async with session.get("/metrics") as response:
            assert "vllm:lora_requests_info{" in await response.text()
    for expected in (200, 404):  # every request has released it
        unloaded = await post(server, "/v1/unload_lora_adapter", {"lora_name": "tuned"})
        assert unloaded[0] == expected, unloaded


async def test_what_the_server_tells_of_itself_is_the_same(server: ServerProcess, one_process: ServerProcess) -> None:
    for path in ("/openapi.json", "/v1/models", "/tokenizer_info", "/version", "/health", "/load"):
        found = []
        for each in (server, one_process):
            async with aiohttp.ClientSession(each.url) as session, session.get(path) as response:
                found.append(stable(await response.json()))
        assert found[0] == found[1], path
    names = []
    for each in (server, one_process):
        async with aiohttp.ClientSession(each.url) as session, session.get("/metrics") as response:
            lines = (await response.text()).splitlines()
            names.append({line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")})
    assert names[1] - names[0] == set()
    assert "specserve_engine_process_resident_memory_bytes" in names[0] - names[1]
