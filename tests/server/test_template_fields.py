"""What a body sets of the chat template: kwargs, documents, reasoning, the message to continue. No other meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from specserve_server.state.server_state import STATE
from specserve_server.templates.chat_template import ChatTemplate
from specserve_server.templates.model_template import ModelTemplate

if TYPE_CHECKING:
    from collections.abc import Callable

    from fake_engine import FakeEngine

MESSAGES = [{"role": "user", "content": "a"}]
CHAT = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
SHOWN = "{{ enable_thinking }} {{ mode }} {{ level }}"
EFFORT = "{{ reasoning_effort }} {{ verbosity }}"
TOOLS = "{{ tools[0].function.name or 'none' }}{# <tool_call> #}"
DOCUMENTS = "{% for d in documents %}{{ d.title }}={{ d.text }};{% endfor %}"
ASSISTANT = {"role": "assistant", "content": "x = "}


@pytest.fixture
def use_template(client: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """The server has this one from now on."""

    def use(source: str) -> None:
        template = ModelTemplate(ChatTemplate(source, {"bos_token": "<s>"}))
        monkeypatch.setattr(client.app[STATE].engine, "template", template)

    return use


@pytest.fixture
def prompt_of(client: Any, engine: FakeEngine, use_template: Callable[[str], None]) -> Any:
    """`await prompt_of(template, **fields)`: the prompt, or the error. /tokenize must agree with chat."""

    async def prompt_of(template: str, messages: Any = MESSAGES, **fields: Any) -> Any:
        use_template(template)
        body = {"messages": messages, **fields}
        response = await client.post("/v1/chat/completions", json={**body, "max_tokens": 1})
        tokens = await client.post("/tokenize", json=body)
        assert response.status == tokens.status, await tokens.text()
        if response.status != 200:
            assert await response.json() == await tokens.json()
            return (await response.json())["error"]
        assert (await tokens.json())["tokens"] == list(engine.submitted[-1].prompt_token_ids)
        return engine.tokenizer.decode(engine.submitted[-1].prompt_token_ids, skip_special_tokens=False)

    return prompt_of


async def test_kwargs_are_the_templates_variables(prompt_of: Any) -> None:
    kwargs = {"enable_thinking": False, "mode": "x", "level": [1, {"a": None}]}
    assert await prompt_of(SHOWN, chat_template_kwargs=kwargs) == "False x [1, {'a': None}]"
    assert await prompt_of(CHAT, chat_template_kwargs={}) == "user: a<|end|>assistant: "
    assert await prompt_of(CHAT, chat_template_kwargs={"enable_thinking": False}) == "user: a<|end|>assistant: "
    assert await prompt_of(CHAT, chat_template_kwargs=None) == "user: a<|end|>assistant: "


@pytest.mark.parametrize(
    "name",
    ["messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "bos_token", "range",
     "namespace", "raise_exception", "strftime_now", "chat_template"],
)  # fmt: skip
async def test_a_reserved_name_is_refused_by_name(prompt_of: Any, name: str) -> None:
    error = await prompt_of(f"{{{{ {name} }}}}", chat_template_kwargs={name: "x"})
    assert error["param"] == "chat_template_kwargs"
    assert f"{name} is reserved" in error["message"]


async def test_a_variable_that_the_template_does_not_read_is_refused(prompt_of: Any) -> None:
    error = await prompt_of(SHOWN, chat_template_kwargs={"thinking": False})
    assert error["param"] == "chat_template_kwargs"
    assert '"thinking"; it reads enable_thinking, level, mode' in error["message"]
    assert "no other variables" in (await prompt_of(CHAT, chat_template_kwargs={"thinking": 1}))["message"]


@pytest.mark.parametrize("kwargs", [[], "x", 5, {"mode": "x" * 70_000}, {"mode": [[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]}])
async def test_kwargs_are_an_object_of_bounded_size_and_depth(prompt_of: Any, kwargs: Any) -> None:
    assert (await prompt_of(SHOWN, chat_template_kwargs=kwargs))["param"] == "chat_template_kwargs"


@pytest.mark.parametrize("text", ['{"mode": 1e999}', '{"mode": "\\ud800"}', '{"mode": ' + "[" * 300 + "]" * 300 + "}"])
async def test_kwargs_that_no_template_could_read_are_a_400(client: Any, text: str) -> None:
    data = f'{{"messages": [{{"role": "user"}}], "chat_template_kwargs": {text}}}'
    response = await client.post("/tokenize", data=data)
    assert response.status == 400


async def test_documents_reach_a_template_that_reads_them(prompt_of: Any) -> None:
    documents = [{"title": "t", "text": "u"}, {"title": "v", "text": "w"}]
    assert await prompt_of(DOCUMENTS, documents=documents) == "t=u;v=w;"
    assert (await prompt_of(CHAT, documents=documents))["param"] == "documents"
    assert await prompt_of(CHAT, documents=[]) == "user: a<|end|>assistant: "
    assert (await prompt_of(DOCUMENTS, documents=[{"text": 5}]))["param"] == "documents"


@pytest.mark.parametrize(
    ("template", "effort", "prompt"),
    [
        (EFFORT, "high", "high "),
        (EFFORT, "none", "none "),
        ("{{ enable_thinking }}", "none", "False"),
        ("{{ enable_thinking }}", "low", "True"),
        ("{{ thinking }}", "none", "False"),
        ("plain", "none", "plain"),
        ("plain", "high", None),
        ("<think>", "none", None),
        ("plain", "much", None),
    ],
)
async def test_reasoning_effort_is_set_or_refused(prompt_of: Any, template: str, effort: str, prompt: Any) -> None:
    got = await prompt_of(template, reasoning_effort=effort)
    assert got == prompt if prompt is not None else got["param"] == "reasoning_effort"


async def test_kwargs_go_before_reasoning_effort(prompt_of: Any) -> None:
    kwargs = {"enable_thinking": False}
    assert await prompt_of("{{ enable_thinking }}", reasoning_effort="high", chat_template_kwargs=kwargs) == "False"


async def test_verbosity_is_set_or_refused(prompt_of: Any) -> None:
    assert await prompt_of(EFFORT, verbosity="low") == " low"
    assert await prompt_of("plain", verbosity="medium") == "plain"
    assert (await prompt_of("plain", verbosity="low"))["param"] == "verbosity"


@pytest.mark.parametrize(
    ("template", "content", "prompt"),
    [
        (CHAT, "x = ", "user: a<|end|>assistant: x = "),
        (CHAT, "", "user: a<|end|>assistant: "),
        (CHAT, [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}], "user: a<|end|>assistant: x\ny"),
        (CHAT.replace("m.content", "m.content | trim"), "x = ", "user: a<|end|>assistant: x ="),
        (CHAT + "{% if messages[0].content == 'a' %}!{% endif %}", "x", "user: a<|end|>assistant: x"),
    ],
)
async def test_the_last_message_is_continued(prompt_of: Any, template: str, content: Any, prompt: str) -> None:
    messages = [*MESSAGES, {"role": "assistant", "content": content}]
    for given in ({}, {"add_generation_prompt": False}, {"add_generation_prompt": None}):
        assert await prompt_of(template, messages, continue_final_message=True, **given) == prompt


@pytest.mark.parametrize(
    ("template", "last", "fields", "message"),
    [
        (CHAT, ASSISTANT, {"add_generation_prompt": True}, "begins a new message"),
        (CHAT, {"role": "user", "content": "b"}, {}, "the assistant's"),
        (CHAT, {"role": "assistant"}, {}, "with content"),
        (CHAT, ASSISTANT | {"tool_calls": [{"function": {"name": "f"}}]}, {}, "without tool_calls"),
        ("{{ messages[0].content }}", ASSISTANT, {}, "does not show the last message"),
    ],
)
async def test_a_message_that_cannot_be_continued_is_refused(
    prompt_of: Any, template: str, last: Any, fields: Any, message: str
) -> None:
    error = await prompt_of(template, [*MESSAGES, last], continue_final_message=True, **fields)
    assert error["param"] == "continue_final_message"
    assert message in error["message"]


async def test_a_continued_answer_is_the_new_text_alone(client: Any, engine: FakeEngine) -> None:
    body = {"messages": [*MESSAGES, ASSISTANT], "continue_final_message": True}
    response = await client.post("/v1/chat/completions", json=body)
    assert (await response.json())["choices"][0]["message"]["content"] == engine.text


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ({"function_call": {"name": "f", "arguments": "{}"}}, "tool_calls"),
        ({"role": "function", "name": "f"}, "role tool"),
        ({"audio": {"id": "x"}}, "audio"),
        ({"prefix": True}, "prefix"),
        ({"partial": True}, "partial"),
        ({"refusal": "no"}, "refusal"),
    ],
)
async def test_a_field_of_a_message_that_would_change_the_prompt_is_refused(
    prompt_of: Any, field: dict[str, Any], name: str
) -> None:
    error = await prompt_of(CHAT, [*MESSAGES, {**ASSISTANT, **field}])
    assert error["param"] == "messages"
    assert name in error["message"]


async def test_a_message_as_the_openai_sdk_dumps_it_is_served(prompt_of: Any) -> None:
    dumped = {**ASSISTANT, "refusal": None, "audio": None, "function_call": None, "annotations": [], "prefix": False}
    assert await prompt_of(CHAT, [dumped, *MESSAGES]) == "assistant: x = <|end|>user: a<|end|>assistant: "
    refused = {"role": "assistant", "content": None, "refusal": "no"}
    assert await prompt_of(CHAT, [refused]) == "assistant: no<|end|>assistant: "


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
async def test_a_template_reads_the_reasoning_of_a_message_by_either_name(prompt_of: Any, name: str) -> None:
    template = "{{ messages[0].reasoning }}|{{ messages[0].reasoning_content }}"
    assert await prompt_of(template, [{**ASSISTANT, name: "hm"}]) == "hm|hm"


async def test_tokenize_has_the_tools_that_a_chat_would_have(
    client: Any, engine: FakeEngine, use_template: Callable[[str], None]
) -> None:
    use_template(TOOLS)
    tools = [{"type": "function", "function": {"name": "look_up"}}]

    async def tokens(**fields: Any) -> Any:
        response = await client.post("/tokenize", json={"messages": MESSAGES, **fields})
        return (await response.json()).get("tokens")

    assert await tokens(tools=tools) == engine.tokenizer.encode("look_up")
    assert await tokens(tools=tools, tool_choice="none") != await tokens(tools=tools)


async def test_tokenize_refuses_tools_that_the_template_has_no_place_for(
    client: Any, use_template: Callable[[str], None]
) -> None:
    use_template(CHAT)
    tools = [{"type": "function", "function": {"name": "look_up"}}]
    response = await client.post("/tokenize", json={"messages": MESSAGES, "tools": tools})
    assert (response.status, (await response.json())["error"]["param"]) == (400, "tools")


@pytest.mark.parametrize(
    ("name", "value"),
    [("continue_final_message", True), ("chat_template_kwargs", {"a": 1}), ("documents", [{"text": "x"}]),
     ("reasoning_effort", "low"), ("verbosity", "low"), ("tools", [{"type": "function", "function": {"name": "f"}}])],
)  # fmt: skip
async def test_a_prompt_to_tokenize_has_no_fields_of_messages(client: Any, name: str, value: Any) -> None:
    response = await client.post("/tokenize", json={"prompt": "a", name: value})
    assert (response.status, (await response.json())["error"]["param"]) == (400, name)


@pytest.mark.parametrize(("path", "body"), [("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [1]})])
async def test_an_unknown_model_is_404_for_tokenization_too(client: Any, path: str, body: Any) -> None:
    response = await client.post(path, json={**body, "model": "gpt-x"})
    assert (response.status, (await response.json())["error"]["code"]) == (404, "model_not_found")
    assert (await client.post(path, json={**body, "model": "fake-model"})).status == 200
    assert (await client.post(path, json={**body, "model": None})).status == 200
