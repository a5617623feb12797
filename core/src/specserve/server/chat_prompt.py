"""From the messages of a chat, and what its body sets of the template, to the token ids of its prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from specserve.errors import RequestError
from specserve.server.continued_message import check_continued, cut_at_mark, new_mark
from specserve.server.template_variables import TemplateBody, template_variables
from specserve.server.tools.borrowing import BORROWED, without_tools

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.server.engine_client import ServerTokenizer
    from specserve.server.request_bodies import Message
    from specserve.server.tools.bodies import Tool, ToolCall


class MessagesBody(TemplateBody, Protocol):
    @property
    def messages(self) -> list[Message] | None: ...

    @property
    def add_generation_prompt(self) -> bool | None: ...

    @property
    def continue_final_message(self) -> bool | None: ...

    @property
    def add_special_tokens(self) -> bool | None: ...


def encode_chat(tokenizer: ServerTokenizer, body: MessagesBody, tools: Sequence[Tool]) -> list[int]:
    """The prompt of a conversation. `tools`: those that the model may call. The template writes the special tokens
    itself."""
    if not body.messages:
        raise RequestError("messages is required: a list of {role, content}.", param="messages")
    mark = ""
    if body.continue_final_message:
        check_continued(body.messages, body.add_generation_prompt)
        mark = new_mark()
    messages = [template_message(message) for message in body.messages]
    messages[-1]["content"] = f"{messages[-1]['content']}{mark}"
    described = [template_tool(tool) for tool in tools]
    if (form := BORROWED.get(tokenizer)) is not None:
        messages, described = without_tools(tokenizer, form, messages, described), []
    rendered = tokenizer.render_chat(
        messages,
        tools=described,
        add_generation_prompt=body.add_generation_prompt is not False and not mark,
        variables=template_variables(tokenizer, body),
    )
    prompt = cut_at_mark(rendered, mark) if mark else rendered
    return tokenizer.encode(prompt, add_special_tokens=bool(body.add_special_tokens))


def template_message(message: Message) -> dict[str, object]:
    """A message as chat templates read it; text parts are joined, and the arguments of tool calls are objects."""
    refuse_message_fields(message)
    found: dict[str, object] = {"role": message.role, "content": text_content(message)}
    if message.name is not None:
        found["name"] = message.name
    if message.tool_call_id is not None:
        found["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        found["tool_calls"] = [template_call(call) for call in message.tool_calls]
    reasoning = message.reasoning_content if message.reasoning is None else message.reasoning
    if reasoning is not None:
        found["reasoning"] = found["reasoning_content"] = reasoning
    return found


def text_content(message: Message) -> str:
    """What the assistant refused with is its text, too."""
    content = message.content
    if isinstance(content, list):
        for part in content:
            if part.type != "text":
                raise RequestError(f"only text content is served; got a part of type {part.type!r}.", param="messages")
            if part.text is None:
                raise RequestError("a content part of type text needs a text.", param="messages")
        content = "\n".join(part.text or "" for part in content)
    return content or message.refusal or ""


def refuse_message_fields(message: Message) -> None:
    """Fields of OpenAI's and other APIs without which the prompt would be another one."""
    if message.role == "function" or bytes(message.function_call) not in (b"", b"null"):
        text = "functions are not served; send tool_calls, and their results with the role tool"
        raise RequestError(f"messages: {text}.", param="messages")
    if bytes(message.audio) not in (b"", b"null"):
        raise RequestError("messages: audio is not served; send its text as content.", param="messages")
    if message.prefix or message.partial:
        name = "prefix" if message.prefix else "partial"
        raise RequestError(f"messages: {name} is not served; send continue_final_message.", param="messages")
    if message.content and message.refusal:
        raise RequestError("messages: a message has either content or a refusal; got both.", param="messages")


def template_call(call: ToolCall) -> dict[str, object]:
    function = call.function
    try:
        arguments = msgspec.json.decode(function.arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        text = f"the arguments of the call of {function.name!r} are not valid JSON"
        raise RequestError(f"messages: {text}; send them as the answer had them.", param="messages") from None
    return {"id": call.id, "type": "function", "function": {"name": function.name, "arguments": arguments}}


def template_tool(tool: Tool) -> dict[str, object]:
    function = tool.function
    parameters = bytes(function.parameters) or b"null"
    described = {
        "name": function.name,
        "description": function.description or "",
        "parameters": msgspec.json.decode(parameters) or {"type": "object", "properties": {}},
    }
    return {"type": "function", "function": described}
