"""Fields that few answers have are described in /openapi.json, too: of tools, reasoning, checks and statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from fake_engine import FakeEngine
from openapi_checks import Described
from test_codex_tools import CUSTOM, FIND
from test_codex_tools import TOOLS as CODEX_TOOLS
from test_typed_reasoning import TEMPLATE, TEXT
from tiny_tokenizer import write_model_dir

from specserve.protocols import AnswerCheck
from specserve.text.tokenizer import HfTokenizer
from specserve.types import DrafterStats, PlannerStats, SpeculationStats

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from specserve.types import GenerateRequest, RequestOutput

HELLO = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object"}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "hi", "response_format": {"type": "json_object"}},
    "/v1/chat/completions": {"messages": HELLO, "response_format": {"type": "json_object"}},
    "/v1/responses": {"input": "hi", "text": {"format": {"type": "json_object"}}},
    "/v1/messages": {
        "messages": HELLO,
        "max_tokens": 99,
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    },
}
THOUGHTS = {
    "/v1/chat/completions": "reasoning_content",
    "/v1/responses": "response.reasoning_text.done",
    "/v1/messages": "signature_delta",
}
STATS = SpeculationStats(2, 6, 3, (0, 1, 1), PlannerStats({"deep": 2}, 2.5), {"ngram": DrafterStats(6, 3)})


class TellingEngine(FakeEngine):
    """Its drafters and its planner state what they did."""

    def outputs(self, request: GenerateRequest) -> Iterable[RequestOutput]:
        for output in super().outputs(request):
            yield output if output.stats is None else msgspec.structs.replace(output, stats=STATS)


async def checked(client: Any, path: str, body: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The whole answer and the events of a streamed one, as the document describes them."""
    document = Described(await (await client.get("/openapi.json")).json())
    whole = await document.check("post", path, await client.post(path, json=body))
    options = {"stream_options": {"include_usage": True}} if path.endswith("completions") else {}
    events = await document.check("post", path, await client.post(path, json=body | {"stream": True} | options))
    return whole, events


@pytest.mark.direct
@pytest.mark.parametrize("path", BODIES)
async def test_reasoning_checks_and_statistics(connect: Any, tmp_path: Path, path: str) -> None:
    write_model_dir(tmp_path, TEMPLATE)
    engine = TellingEngine(HfTokenizer.from_dir(tmp_path), text=TEXT + "#", reason="stop")
    engine.output_kinds = frozenset({"json", "json_object"})
    engine.plugins.answers["check_answer"] = AnswerCheck(False, ("uniqueItems at /a",), ("it is no object",))
    whole, events = await checked(await connect(engine), path, BODIES[path])
    found = str((whole, events))
    for name in ("validation", "unenforced", "planner", "drafters"):
        assert found.count(f"'{name}'") >= 2, f"{name} is in the whole answer and in an event"
    assert THOUGHTS.get(path, "text") in found


@pytest.mark.direct
@pytest.mark.parametrize("text", [f"{CUSTOM}{FIND}!", CUSTOM[:60]])
async def test_calls_of_custom_tools_and_of_namespaces(connect: Any, tool_engine: FakeEngine, text: str) -> None:
    tool_engine.text, tool_engine.max_model_len = text, 4096
    body = {"input": "a", "tools": CODEX_TOOLS, "tool_choice": {"type": "custom", "name": "apply_patch"}}
    whole, events = await checked(await connect(tool_engine), "/v1/responses", body)
    assert whole["output"][0]["type"] == "custom_tool_call"
    assert whole["warnings"]
    assert "response.custom_tool_call_input.done" in [event["type"] for event in events]
