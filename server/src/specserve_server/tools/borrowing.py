"""`--tool-form`: a model whose chat template has no place for tools borrows the form of another one.

Tools are described in the system message, earlier calls are text of the assistant and results text of the user: so the
template sees conversations that it knows.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from specserve.errors import RequestError
from specserve_server.tools.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specserve_server.templates.model_template import ModelTemplate
    from specserve_server.tools.form import ToolForm

    TemplateMessage = dict[str, object]

BORROWED: WeakKeyDictionary[ModelTemplate, ToolForm] = WeakKeyDictionary()
MARK = "a system message"


def borrow_form(template: ModelTemplate, name: str | None) -> None:
    """For all requests of the server that has the template."""
    if name is not None:
        BORROWED[template] = FORMATS[name]


def without_tools(
    template: ModelTemplate, form: ToolForm, messages: Sequence[TemplateMessage], tools: Sequence[TemplateMessage]
) -> list[TemplateMessage]:
    """The conversation as a template takes it that knows no tools."""
    found: list[TemplateMessage] = []
    for message in messages:
        plain = plain_message(form, message)
        if found and found[-1]["role"] == plain["role"] == "user":  # templates want roles to alternate
            found[-1] = {**found[-1], "content": f"{found[-1]['content']}\n{plain['content']}"}
        else:
            found.append(plain)
    return with_description(template, found, description(form, tools)) if tools else found


def plain_message(form: ToolForm, message: TemplateMessage) -> TemplateMessage:
    calls = message.get("tool_calls")
    if message["role"] == "tool":
        before, after = form.result_marks
        return {"role": "user", "content": f"{before}{message['content']}{after}"}
    if not isinstance(calls, list):
        return message
    return with_calls_as_text(form, message, calls)


def with_calls_as_text(form: ToolForm, message: TemplateMessage, calls: Sequence[Mapping[str, Any]]) -> TemplateMessage:
    functions = [call["function"] for call in calls]
    written = [form.written(each["name"], as_object(form, each["arguments"])) for each in functions]
    texts = [str(message["content"]), form.separator.join(written)]
    others = {name: value for name, value in message.items() if name != "tool_calls"}
    return {**others, "content": "\n".join(filter(None, texts))}


def as_object(form: ToolForm, arguments: Any) -> Any:
    """Clients send any JSON back; a form with a name for each value takes an object."""
    return arguments if form.style == "json" or isinstance(arguments, dict) else {"arguments": arguments}


def description(form: ToolForm, tools: Sequence[TemplateMessage]) -> str:
    before, after = form.list_marks
    listed = "\n".join(map(to_json, tools))
    how = "its name and its arguments, a JSON object," if form.style == "json" else "its name and its arguments"
    return (
        f"You may call these functions; each has a JSON schema of its arguments:\n{before}{listed}{after}\n"
        f"To call one, write {how} in this way and write nothing else:\n{form.example()}"
    )


def with_description(template: ModelTemplate, messages: list[TemplateMessage], text: str) -> list[TemplateMessage]:
    """In the system message; in the first of the user where the template shows no system message."""
    first = messages[0]
    if first["role"] == "system" or (first["role"] == "user" and not shows_system(template)):
        parts = [str(first["content"]), text] if first["role"] == "system" else [text, str(first["content"])]
        return [{**first, "content": "\n\n".join(filter(None, parts))}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def shows_system(template: ModelTemplate) -> bool:
    try:
        turns = [{"role": "system", "content": MARK}, {"role": "user", "content": "a"}]
        return MARK in template.render(turns)
    except RequestError:
        return False


def to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
