"""HTTP over a real engine on the toy model: no draft, good or bad, changes a response.

The reference is the text of an engine that does not speculate. The drafters are in-process plugins, one noisy and one
that raises.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families
from response_checks import without_speculation

from both_forms import FORMS, in_form
from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve.errors import ConfigError
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_server.app.application import make_app
from specserve_server.config import ServerConfig
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import DEFAULTS, drafter_plugin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from specserve.batch.request import Request
    from specserve.protocols import Drafter

PROMPT = "def read_settings(path):\n"
VOCAB_SIZE = 320
REQUESTS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "seeded": {"seed": 7},
    "penalties": {"seed": 8, "temperature": 0.7, "top_p": 0.9, "frequency_penalty": 1.0, "logit_bias": {"5": 2.0}},
    "stop strings": {"seed": 7, "stop": ["e", "\n"], "include_stop_str_in_output": True},
    "logprobs": {"seed": 9, "logprobs": 3, "echo": True},
    "two choices": {"seed": 10, "n": 2},
}


class FaultyDrafter(NoisyDrafter):
    name = "faulty"

    def draft(self, request: Request, limit: int) -> Any:
        raise ZeroDivisionError


class WireDrafter(NoisyDrafter):
    """Finds the future by prompt and choice: request ids are new for each client request."""

    def __init__(self, known: dict[tuple[tuple[int, ...], str], list[int]]) -> None:
        super().__init__({}, p=0.8, max_width=6, vocab_size=VOCAB_SIZE)
        self.known = known

    def future(self, request: Request) -> Sequence[int]:
        key = tuple(request.tokens[: request.prompt_len]), request.id.rpartition("-")[2]
        return self.known.get(key, [])[request.num_generated :]


@asynccontextmanager
async def serving(model: Path, make: Callable[[], Drafter] | None = None, form: str = "direct") -> AsyncIterator[Any]:
    """A client of a server with this drafter, or with none."""
    extra = {} if make is None else {"drafter": drafter_plugin(make, FixedWidthPlanner(8))}
    engine = await AsyncEngine.start(EngineConfig(model=str(model), **DEFAULTS), extra=extra)
    async with (
        in_form(form, engine, ServerConfig()) as attached,
        TestClient(TestServer(make_app(attached, ServerConfig()))) as client,
    ):
        yield client


def body_of(name: str) -> dict[str, Any]:
    return {"prompt": f"# {name}\n{PROMPT}", "max_tokens": 40, "return_token_ids": True, **REQUESTS[name]}


async def complete(client: Any, **body: Any) -> dict[str, Any]:
    response = await client.post("/v1/completions", json=body)
    assert response.status == 200, await response.text()
    content: dict[str, Any] = await response.json()
    return content


async def stream(client: Any, **body: Any) -> list[Any]:
    response = await client.post("/v1/completions", json={**body, "stream": True})
    *events, done, end = (await response.text()).split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def decided(response: dict[str, Any]) -> list[Any]:
    """The choices without what only speculation changes."""
    return [without_speculation(choice) for choice in response["choices"]]


async def samples(client: Any) -> dict[str, float]:
    """The sum of each metric's samples."""
    text = await (await client.get("/metrics")).text()
    families = text_string_to_metric_families(text)
    found: dict[str, float] = {}
    for sample in (sample for family in families for sample in family.samples):
        found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(toy_model: Path) -> dict[str, dict[str, Any]]:
    """The answers of an engine that does not speculate."""
    async with serving(toy_model) as client:
        return {name: await complete(client, **body_of(name)) for name in REQUESTS}


@pytest.fixture(params=FORMS)
async def client(
    toy_model: Path, plain: dict[str, dict[str, Any]], request: pytest.FixtureRequest
) -> AsyncIterator[Any]:
    """Of a server with the noisy drafter, which knows these answers."""
    known = {
        (tuple(choice["prompt_token_ids"]), str(choice["index"])): choice["token_ids"]
        for response in plain.values()
        for choice in response["choices"]
    }
    async with serving(toy_model, lambda: WireDrafter(known), request.param) as client:
        yield client


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_noisy_drafter_changes_no_answer(client: Any, plain: dict[str, Any], name: str) -> None:
    response = await complete(client, **body_of(name))
    assert decided(response) == decided(plain[name])
    assert "metrics" not in plain[name]
    figures = response["metrics"]["speculative_decoding"]
    assert figures["num_accepted_draft_tokens"] == sum(sum(choice["accepted"]) for choice in response["choices"]) > 0
    assert figures["num_draft_tokens"] > figures["num_accepted_draft_tokens"]
    names = [name for choice in response["choices"] for name in choice["drafted_by"] if name]
    assert names == ["noisy"] * figures["num_accepted_draft_tokens"]
    counts = ("num_accepted_draft_tokens", "num_draft_tokens")
    assert figures["drafters"] == {"noisy": {count: figures[count] for count in counts}}


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_stream_has_the_same_text_and_tokens(client: Any, plain: dict[str, Any], name: str) -> None:
    chunks = await stream(client, **body_of(name), stream_options={"include_usage": True})
    for expected in plain[name]["choices"]:
        own = [c for chunk in chunks for c in chunk["choices"] if c["index"] == expected["index"]]
        assert "".join(chunk["text"] for chunk in own) == expected["text"]
        assert [token for chunk in own for token in chunk["token_ids"]] == expected["token_ids"]
        assert own[-1]["finish_reason"] == expected["finish_reason"]
        assert len(own) < len(expected["token_ids"])
    assert chunks[-1]["usage"] == plain[name]["usage"]
    assert chunks[-1]["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"] > 0


async def test_the_token_that_stopped_a_text_is_named(client: Any, plain: dict[str, Any]) -> None:
    third = plain["greedy"]["choices"][0]["token_ids"][2]
    (choice,) = (await complete(client, **body_of("greedy"), stop_token_ids=[third]))["choices"]
    assert (choice["finish_reason"], choice["stop_reason"], choice["token_ids"][-1]) == ("stop", third, third)


async def test_a_request_may_turn_speculation_off(client: Any, plain: dict[str, Any]) -> None:
    response = await complete(client, **body_of("seeded"), speculation={"enabled": False})
    assert decided(response) == decided(plain["seeded"])
    assert "metrics" not in response


async def test_metrics_and_plugins_describe_the_drafter(client: Any) -> None:
    response = await complete(client, **body_of("greedy"))
    figures, found = response["metrics"]["speculative_decoding"], await samples(client)
    assert found["vllm:spec_decode_num_accepted_tokens_total"] == figures["num_accepted_draft_tokens"]
    assert found["vllm:spec_decode_num_draft_tokens_total"] == figures["num_draft_tokens"]
    assert found["vllm:spec_decode_num_accepted_tokens_per_pos_total"] == figures["num_accepted_draft_tokens"]
    assert found["specserve_accepted_draft_tokens_total"] == figures["num_accepted_draft_tokens"]
    assert found["specserve_draft_tokens_total"] == figures["num_draft_tokens"]
    assert "specserve_drafter_faults_total" not in found
    assert found["vllm:num_requests_running"] == found["vllm:kv_cache_usage_perc"] == 0
    content = await (await client.get("/v1/plugins")).json()
    assert [(p["name"], p["enabled"], p["features"]) for p in content["data"] if p["enabled"]] == [
        ("drafter", True, ["draft.chain", "draft.tree", "planner.adaptive"])
    ]
    assert (content["engine"]["drafters"], content["engine"]["lossless"]) == (["noisy"], True)


async def test_a_faulty_drafter_costs_speculation_and_no_answer(toy_model: Path, plain: dict[str, Any]) -> None:
    def make() -> Drafter:
        return FaultyDrafter({}, p=1, max_width=4, vocab_size=VOCAB_SIZE)

    async with serving(toy_model, make) as client:
        for name in REQUESTS:
            response = await complete(client, **body_of(name))
            assert decided(response) == decided(plain[name])
            assert "metrics" not in response
        found = await samples(client)
    assert found["specserve_drafter_faults_total"] == EngineConfig().draft_fault_limit
    assert found["specserve_drafter_disabled"] == 1
    assert found["vllm:spec_decode_num_accepted_tokens_total"] == 0


async def test_a_full_queue_refuses_a_stream_before_it_starts(toy_model: Path) -> None:
    config = EngineConfig(model=str(toy_model), **{**DEFAULTS, "max_num_seqs": 1}, max_waiting=1)
    app = make_app(await AsyncEngine.start(config), ServerConfig())
    async with TestClient(TestServer(app)) as client:
        response = await client.post("/v1/completions", json={"prompt": "a", "n": 3, "stream": True})
        assert (response.status, response.headers["Retry-After"]) == (429, "1")
        assert (await response.json())["error"]["code"] == "queue_full"


async def test_a_cache_that_does_not_fit_is_a_configuration_error(toy_model: Path) -> None:
    config = EngineConfig(model=str(toy_model), **{**DEFAULTS, "kv_memory": "1000000000G"})
    with pytest.raises(ConfigError, match="Choose a smaller --kv-memory"):
        await AsyncEngine.start(config)
