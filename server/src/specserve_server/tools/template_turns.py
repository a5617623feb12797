"""A conversation with tools and calls in the way in which its model's chat template takes them.

Most templates take them as OpenAI's API has them. Some have no place for tools, take them in a system message, write no
calls, or take one call per message.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from specserve_server.tools.borrowing import BORROWED, with_calls_as_text, without_tools
from specserve_server.tools.formats import template_form
from specserve_server.tools.harmony import HARMONY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from specserve_server.templates.model_template import ModelTemplate
    from specserve_server.tools.borrowing import TemplateMessage

THOUGHTS = ("reasoning", "reasoning_content", "thinking")
"""Keys of a message under which templates look for them."""


class Turns(NamedTuple):
    """For `ModelTemplate.render`."""

    messages: Sequence[TemplateMessage]
    tools: Sequence[TemplateMessage]


def template_turns(
    template: ModelTemplate, messages: Sequence[TemplateMessage], tools: Sequence[TemplateMessage]
) -> Turns:
    borrowed = BORROWED.get(template)
    if borrowed is not None:
        return Turns(without_tools(template, borrowed, messages, tools), ())
    if not tools and not any("tool_calls" in message for message in messages):
        return Turns(messages, tools)
    found = template_form(template)
    if found.form is None:
        return Turns(messages, tools)
    if found.form is HARMONY and found.writes_calls:
        messages = list(single_calls(messages))
    if not found.writes_calls:
        messages = [
            with_calls_as_text(found.form, message, calls)
            if isinstance(calls := message.get("tool_calls"), list)
            else message
            for message in messages
        ]
    if tools and found.in_system:
        return Turns(with_tools_in_system(messages, tools), ())
    return Turns(messages, tools)


def with_tools_in_system(
    messages: Sequence[TemplateMessage], tools: Sequence[TemplateMessage]
) -> list[TemplateMessage]:
    """Phi-4-mini's template takes them as JSON text in the key `tools` of a system message."""
    listed = json.dumps([tool["function"] for tool in tools], ensure_ascii=False)
    if messages[0]["role"] == "system":
        return [{**messages[0], "tools": listed}, *messages[1:]]
    return [{"role": "system", "content": "", "tools": listed}, *messages]


def single_calls(messages: Sequence[TemplateMessage]) -> Iterator[TemplateMessage]:
    """gpt-oss' template shows the first call of a message only, a result as that of the call before it, and beside a
    call either content or thoughts: so each call has a message of its own, with its result behind it."""
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        calls = message.get("tool_calls")
        if not isinstance(calls, list):
            yield message
            continue
        results: list[TemplateMessage] = []
        while at < len(messages) and messages[at]["role"] == "tool":
            results.append(messages[at])
            at += 1
        yield from calls_with_results(with_one_text(message), calls, results)


def calls_with_results(
    message: TemplateMessage, calls: Sequence[dict[str, Any]], results: list[TemplateMessage]
) -> Iterator[TemplateMessage]:
    bare = {name: value for name, value in message.items() if name not in THOUGHTS} | {"content": ""}
    for i, call in enumerate(calls):
        yield {**(bare if i else message), "tool_calls": [call]}
        of_call = next((each for each in results if each.get("tool_call_id") == call["id"]), None)
        if of_call is not None:
            results.remove(of_call)
            yield of_call
    yield from results


def with_one_text(message: TemplateMessage) -> TemplateMessage:
    """Thoughts and what the model told before its call as one text."""
    texts = [str(message[name]) for name in ("thinking", "content") if message.get(name)]
    if len(texts) < 2:
        return message
    whole = "\n\n".join(texts)
    return {**message, "content": "", **dict.fromkeys(THOUGHTS, whole)}
