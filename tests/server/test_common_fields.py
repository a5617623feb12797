"""What completions and chat say beside the text: why it ended, which engine made it, in which service tier."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from specserve.config import EngineConfig
from specserve.types import GenerateRequest, RequestOutput, SamplingParams
from specserve_server.engines.in_process import in_process_client
from specserve_server.generation.choices import make_choice
from specserve_server.state.fingerprint import system_fingerprint

if TYPE_CHECKING:
    from fake_engine import FakeEngine

ROUTES = {
    "/v1/completions": {"prompt": "a", "max_tokens": 99},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
}


def fingerprint(engine: FakeEngine) -> str:
    return system_fingerprint(in_process_client(engine).read_state())


async def answers(client: Any, path: str, **fields: Any) -> list[dict[str, Any]]:
    """The whole answer, then the chunks of the stream."""
    body = {**ROUTES[path], **fields}
    whole = await (await client.post(path, json=body)).json()
    data = await (await client.post(path, json={**body, "stream": True})).read()
    return [whole, *(json.loads(event.removeprefix(b"data: ")) for event in data.split(b"\n\n")[:-2])]


@pytest.mark.parametrize("path", ROUTES)
async def test_every_answer_and_chunk_says_which_engine_made_it(client: Any, engine: FakeEngine, path: str) -> None:
    found = await answers(client, path, service_tier="flex")
    assert len(found) > 3
    assert {answer["system_fingerprint"] for answer in found} == {fingerprint(engine)}
    assert {answer["service_tier"] for answer in found} == {"default"}


def test_a_fingerprint_changes_with_what_tokens_depend_on(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    described = {"model": "m", "config": EngineConfig(), "kernels": "torch", "graphs": {"steps": 0}}
    plugins = [
        {"name": "lora", "version": "1", "options": {"rank": 4}, "enabled": True},
        {"name": "off", "version": "1", "options": {}, "enabled": False},
    ]
    monkeypatch.setattr(engine, "describe", lambda: described)
    monkeypatch.setattr(engine.plugins, "describe", lambda: plugins)
    first = fingerprint(engine)
    assert first.startswith("fp_")
    described["graphs"] = {"steps": 7}
    plugins[1]["version"] = "2"
    assert fingerprint(engine) == first
    found = {first}
    for change in (
        lambda: described.update(model="n"),
        lambda: described.update(config=msgspec.structs.replace(EngineConfig(), dtype="float32")),
        lambda: plugins[0].update(version="2"),
        lambda: plugins[0].update(options={"rank": 8}),
    ):
        change()
        found.add(fingerprint(engine))
    assert len(found) == 5


@pytest.mark.parametrize("path", ROUTES)
async def test_the_string_that_stopped_a_text_is_named_in_its_last_chunk(client: Any, path: str) -> None:
    whole, *chunks = [answer["choices"][0] for answer in await answers(client, path, stop=["zzz", "wör"])]
    assert (whole["finish_reason"], whole["stop_reason"]) == ("stop", "wör")
    assert [chunk["stop_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["wör"]
    (whole, *_) = await answers(client, path, stop="zzz")
    assert (whole["choices"][0]["finish_reason"], whole["choices"][0]["stop_reason"]) == ("length", None)


@pytest.mark.parametrize(("last", "reason"), [(5, 5), (6, None)])
def test_a_token_that_stops_is_named_where_the_request_asked_for_it(tokenizer: Any, last: int, reason: Any) -> None:
    params = SamplingParams(stop_token_ids=(5, 7))
    choice = make_choice(0, GenerateRequest(request_id="r", prompt_token_ids=(1,), params=params), tokenizer)
    output = choice.update(RequestOutput("r", (9, last), "stop"))
    assert output is not None
    assert (output.stop_reason, choice.full_output().stop_reason) == (reason, reason)
