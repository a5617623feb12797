"""What two replicas answer is what one server answers: tokens, streams and errors."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING, Any

import pytest
from served import KEY

if TYPE_CHECKING:
    from clients import Client, Json

PROMPTS = [f"def function_{number}(values):\n    total = 0\n    for value in values:\n" for number in range(6)]
SAMPLINGS: list[Json] = [
    {"temperature": 0},
    {"temperature": 0.9, "seed": 5},
    {"temperature": 0.7, "top_p": 0.8, "seed": 6},
]


async def streamed(client: Client, path: str, body: Json) -> Any:
    """Ids of tokens and the ends of all choices, and the usage."""
    ids: dict[int, list[int]] = {}
    ends, usage = {}, None
    async for event in client.events(path, **body, return_token_ids=True, stream_options={"include_usage": True}):
        if isinstance(event, str) or "choices" not in event:
            continue
        for choice in event["choices"]:
            ids.setdefault(choice["index"], []).extend(choice.get("token_ids") or [])
            ends[choice["index"]] = choice["finish_reason"]
        usage = event.get("usage") or usage
    assert usage is not None
    return ids, ends, usage["completion_tokens"]


def bodies() -> list[tuple[str, Json]]:
    completions = [
        (
            "/v1/completions",
            {"prompt": prompt, "max_tokens": 40, **sampling, "n": 1 if sampling["temperature"] == 0 else 2},
        )
        for prompt in PROMPTS
        for sampling in SAMPLINGS
    ]
    chats = [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}], "max_tokens": 30, **sampling})
        for prompt in PROMPTS[:3]
        for sampling in SAMPLINGS
    ]
    return completions + chats


async def test_streams_have_the_tokens_of_one_server(replicas: Client, single: Client) -> None:
    wanted = await asyncio.gather(*(streamed(single, path, body) for path, body in bodies()))
    found = await asyncio.gather(*(streamed(replicas, path, body) for path, body in bodies()))
    assert found == wanted
    assert all(any(ids.values()) for ids, _, _ in wanted)
    assert await replicas.total("specserve_accepted_draft_tokens_total") > 0, "nothing was drafted"


async def test_bodies_may_be_compressed(replicas: Client) -> None:
    body = gzip.compress(b'{"prompt": "def f():", "max_tokens": 3}')
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = await replicas.send("POST", "/v1/completions", body, headers)
    assert (answer.status, answer.json["usage"]["completion_tokens"]) == (200, 3)


async def test_both_replicas_answer(replicas: Client) -> None:
    answers = await asyncio.gather(
        *(replicas.post("/v1/completions", prompt=each, max_tokens=20) for each in PROMPTS * 4)
    )
    assert {answer.headers["X-Specserve-Replica"] for answer in answers} == await replicas.replica_ids()


WRONG: list[tuple[str, str, Any]] = [
    ("POST", "/v1/completions", {"prompt": 5}),
    ("POST", "/v1/completions", {"prompt": "a", "temperature": -1}),
    ("POST", "/v1/completions", {"prompt": "a", "model": "nobody"}),
    ("POST", "/v1/completions", b"{"),
    ("POST", "/v1/completions", b'{"prompt": "' + b"a" * 1_100_000 + b'"}'),
    ("POST", "/v1/chat/completions", {"messages": []}),
    ("POST", "/v1/messages", {"messages": [], "max_tokens": 3}),
    ("POST", "/v1/responses", {"input": "a", "previous_response_id": "resp_none"}),
    ("POST", "/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "nowhere"}),
    ("POST", "/v1/load_lora_adapter", {"lora_path": 5}),
    ("POST", "/v1/unload_lora_adapter", {"lora_name": "nobody"}),
    ("DELETE", "/v1/ngram/corpora/nothing", None),
    ("GET", "/v1/ngram/corpora/nothing", None),
    ("GET", "/v1/completions", None),
    ("GET", "/v1/nothing?a=1", None),
    ("GET", "/v1/responses/resp_none", None),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body"), WRONG, ids=range(len(WRONG)))
async def test_errors_are_those_of_one_server(
    replicas: Client, single: Client, method: str, path: str, body: Any
) -> None:
    found, wanted = await replicas.send(method, path, body), await single.send(method, path, body)
    assert (found.status, found.json) == (wanted.status, wanted.json)
    assert wanted.status >= 400


@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/load", "/v1/plugins"])
async def test_a_wrong_key_is_refused_everywhere(replicas: Client, single: Client, path: str) -> None:
    headers = {"Authorization": "Bearer wrong"}
    found, wanted = await replicas.send("GET", path, headers=headers), await single.send("GET", path, headers=headers)
    assert (found.status, found.json) == (401, wanted.json)


async def test_health_needs_no_key(replicas: Client) -> None:
    answer = await replicas.send("GET", "/health", headers={})
    assert (answer.status, answer.json) == (200, {"status": "ready"})


async def test_a_client_that_leaves_frees_its_blocks(replicas: Client) -> None:
    async for event in replicas.events("/v1/completions", prompt="def f():", max_tokens=3000, ignore_eos=True):
        if isinstance(event, dict) and "choices" in event:
            assert await replicas.total("vllm:num_requests_running") == 1
            break
    await replicas.wait_until_idle()
    ends = [each for each in await replicas.metrics() if each.name == "vllm:request_success_total"]
    assert sum(each.value for each in ends if each.labels["finished_reason"] == "abort") > 0
