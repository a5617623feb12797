"""System messages within a conversation reach the prompt, whatever the chat template takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fake_engine import FakeEngine

from specserve.text.tokenizer import HfTokenizer

if TYPE_CHECKING:
    from pathlib import Path

TURN = "{{ m.role }}: {{ m.content }};"
STRICT = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first') }}{% endif %}"
)
TEMPLATES = {
    "any place": "{% for m in messages %}" + TURN + "{% endfor %}",
    "the first": STRICT + TURN + "{% endfor %}",
    "silently": "{% for m in messages %}{% if m.role != 'system' or loop.first %}" + TURN + "{% endif %}{% endfor %}",
}
TURNS = [
    {"role": "system", "content": "b"},
    {"role": "user", "content": "c"},
    {"role": "assistant", "content": "d"},
    {"role": "system", "content": [{"type": "text", "text": "e"}]},
    {"role": "user", "content": "f"},
    {"role": "system", "content": "g"},
]
KEPT = "system: a\n\nb;user: c;assistant: d;system: e;user: f;system: g;"
MOVED = "system: a\n\nb;user: c;assistant: d;user: e\n\nf\n\ng;"


@pytest.mark.parametrize("name", TEMPLATES)
async def test_later_ones_are_shown_by_every_template(connect: Any, tmp_path: Path, name: str) -> None:
    from tiny_tokenizer import write_model_dir

    write_model_dir(tmp_path, TEMPLATES[name])
    engine = FakeEngine(HfTokenizer.from_dir(tmp_path))
    client = await connect(engine)
    items = [turn if isinstance(turn["content"], str) else {**turn, "content": "e"} for turn in TURNS]
    for path, body in (
        ("/v1/messages", {"system": "a", "messages": TURNS, "max_tokens": 4}),
        ("/v1/responses", {"instructions": "a", "input": items}),
    ):
        response = await client.post(path, json=body)
        assert response.status == 200, await response.text()
        prompt = engine.tokenizer.decode(engine.submitted[-1].prompt_token_ids)
        assert prompt == (KEPT if name == "any place" else MOVED)
    counted = await client.post("/v1/messages/count_tokens", json={"system": "a", "messages": TURNS})
    assert (await counted.json())["input_tokens"] == len(engine.submitted[0].prompt_token_ids)


async def test_a_tool_that_was_found_is_told_by_its_name(connect: Any, tool_engine: FakeEngine) -> None:
    client = await connect(tool_engine)
    found = [{"type": "text", "text": "2:"}, {"type": "tool_reference", "tool_name": "weather"}]
    use = {"type": "tool_use", "id": "t1", "name": "search", "input": {}}
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": "t1", "content": found}
    turns = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    body = {"messages": turns, "max_tokens": 4, "tools": [{"name": "search", "input_schema": {"type": "object"}}]}
    response = await client.post("/v1/messages", json=body)
    assert response.status == 200, await response.text()
    prompt = tool_engine.tokenizer.decode(tool_engine.submitted[-1].prompt_token_ids)
    assert prompt.endswith("\ntool: 2:\nfound tool: weather\n")
    found[1].pop("tool_name")
    response = await client.post("/v1/messages", json=body)
    assert (response.status, "tool_name: is missing" in await response.text()) == (400, True)
