"""From the messages of a chat, and what its body sets of the template, to the token ids of its prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from specserve.errors import RequestError
from specserve_server.chat.continued_message import check_continued, cut_at_mark, new_mark
from specserve_server.chat.messages import check_roles, template_messages
from specserve_server.chat.template_variables import TemplateBody, template_variables
from specserve_server.tools.schemas import decode_schema
from specserve_server.tools.template_turns import template_turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.bodies.requests import Message
    from specserve_server.bodies.tools import Tool
    from specserve_server.engine_client import EngineClient


class MessagesBody(TemplateBody, Protocol):
    @property
    def messages(self) -> list[Message] | None: ...

    @property
    def add_generation_prompt(self) -> bool | None: ...

    @property
    def continue_final_message(self) -> bool | None: ...

    @property
    def add_special_tokens(self) -> bool | None: ...


def encode_chat(engine: EngineClient, body: MessagesBody, tools: Sequence[Tool]) -> list[int]:
    """The prompt of a conversation. `tools`: those that the model may call. The template writes the special tokens
    itself."""
    if not body.messages:
        raise RequestError("messages is required: a list of {role, content}.", param="messages")
    template = engine.template
    check_roles(body.messages, template.source)
    mark = ""
    if body.continue_final_message:
        check_continued(body.messages, body.add_generation_prompt)
        mark = new_mark()
    messages = template_messages(body.messages)
    messages[-1]["content"] = f"{messages[-1]['content']}{mark}"
    described = [template_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools)]
    turns = template_turns(template, messages, described)
    rendered = template.render(
        turns.messages,
        tools=turns.tools,
        add_generation_prompt=body.add_generation_prompt is not False and not mark,
        variables=template_variables(template, body),
    )
    prompt = cut_at_mark(rendered, mark) if mark else rendered
    return engine.tokenizer.encode(prompt, add_special_tokens=bool(body.add_special_tokens))


def template_tool(tool: Tool, where: str) -> dict[str, object]:
    function = tool.function
    schema = decode_schema(function.parameters, f"{where}.function.parameters")
    described = {
        "name": function.name,
        "description": function.description or "",
        "parameters": schema or {"type": "object", "properties": {}},
    }
    return {"type": "function", "function": described}
