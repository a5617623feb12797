"""From input items, and from output items that come back, to the messages of a chat."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import msgspec

from specserve.errors import RequestError
from specserve_checks.type_words import listed, shown
from specserve_server.bodies.requests import Message
from specserve_server.bodies.responses import CALLS, ITEM_TYPES, REASONING_PARTS, RESULTS, TEXT_PARTS, InputItem
from specserve_server.bodies.tools import CalledFunction, ToolCall
from specserve_server.limits import MAX_MESSAGES
from specserve_server.responses.tools import custom_arguments, full_name
from specserve_server.tools.arguments import decode_arguments, readable_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specserve_server.bodies.responses import InputPart

ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
"""Of an item, and what chat templates call it."""


def add_input(history: Sequence[Message], given: str | list[InputItem] | None) -> list[Message]:
    """The conversation so far and what the request adds to it."""
    if given is None:
        raise RequestError("input is required: a text, or a list of items.", param="input")
    items = [InputItem(role="user", content=given)] if isinstance(given, str) else given
    for i, item in enumerate(items):
        if item.type == "function_call":
            decode_arguments(item.arguments, f"input[{i}].arguments", "input")
    messages = Conversation(history).add_items(items)
    if not messages:
        raise RequestError("input: it has no items; give at least one.", param="input")
    if len(messages) > MAX_MESSAGES:
        text = f"the conversation has {len(messages)} messages, and {MAX_MESSAGES} are allowed; begin a new one"
        raise RequestError(f"input: {text}.", param="input")
    return messages


def add_output(messages: Sequence[Message], output: Sequence[InputItem]) -> list[Message]:
    """The conversation with the answer, which goes on whatever the arguments of its calls are."""
    return Conversation(messages).add_items([with_readable_arguments(item) for item in output])


def with_readable_arguments(item: InputItem) -> InputItem:
    if item.type != "function_call":
        return item
    return msgspec.structs.replace(item, arguments=readable_arguments(item.arguments or ""))


def with_references(
    given: str | list[InputItem] | None, find: Callable[[str, str], InputItem]
) -> str | list[InputItem] | None:
    """The input, with stored items in place of references to them. `find`: from an id, and its path in the body."""
    if not isinstance(given, list):
        return given
    return [found_item(item, f"input[{i}].id", find) for i, item in enumerate(given)]


def found_item(item: InputItem, where: str, find: Callable[[str, str], InputItem]) -> InputItem:
    if item.type != "item_reference":
        return item
    if item.id is None:
        refuse(where, "is missing; an item_reference has the id of an output item that is stored")
    return find(item.id, where)


class Conversation:
    """Messages that items are added to. `where`, in messages of errors, is the item."""

    def __init__(self, history: Sequence[Message]) -> None:
        self.messages = list(history)
        self.reasoning: str | None = None  # of the message of the assistant that comes next
        self.call_ids = {call.id for message in history for call in message.tool_calls or ()}

    def add_items(self, items: Sequence[InputItem]) -> list[Message]:
        for i, item in enumerate(items):
            where = f"input[{i}]"
            if item.type == "reasoning":
                self.reasoning = reasoning_of(item, where)
            elif item.type in CALLS:
                self.add_call(item, where)
            elif item.type in RESULTS:
                self.add_result(item, where)
            elif item.type in (None, "message"):
                self.add_message(item, where)
            else:
                refuse(
                    f"{where}.type", f"must be {listed(map(shown, ITEM_TYPES))}; got {shown(item.type)}; leave it out"
                )
        return self.messages

    def add_message(self, item: InputItem, where: str) -> None:
        """Text behind calls joins their message: templates expect the results right behind it."""
        role = ROLES.get(item.role or "")
        if role is None:
            given = "it is missing" if item.role is None else f"got {shown(item.role)}"
            advice = "; results of tools are items function_call_output" if item.role == "tool" else ""
            refuse(f"{where}.role", f"must be {listed(map(shown, ROLES))}; {given}{advice}")
        if item.content is None:
            refuse(f"{where}.content", 'is missing; it must be a string or a list of texts. Send "" for an empty text')
        text = text_of(item.content, f"{where}.content")
        last = self.messages[-1] if self.messages else None
        if role == "assistant" and last is not None and last.tool_calls:
            joined = "\n".join(filter(None, (str(last.content or ""), text)))
            self.messages[-1] = msgspec.structs.replace(last, content=joined)
        elif role == "assistant":
            self.messages.append(Message(role=role, content=text, reasoning=self.taken_reasoning()))
        else:
            self.reasoning = None
            self.messages.append(Message(role=role, content=text))

    def add_call(self, item: InputItem, where: str) -> None:
        """Calls behind each other, or behind text of the assistant, are one message."""
        if not item.call_id or not item.name:
            missing = "name" if item.call_id else "call_id"
            refuse(f"{where}.{missing}", f"is missing; a {item.type} needs call_id and name, as the answer had them")
        arguments = custom_arguments(item.input or "") if item.type == "custom_tool_call" else item.arguments
        function = CalledFunction(name=full_name(item.name, item.namespace), arguments=arguments)
        call = ToolCall(id=item.call_id, type="function", function=function)
        self.call_ids.add(item.call_id)
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == "assistant" and self.reasoning is None:
            self.messages[-1] = msgspec.structs.replace(last, tool_calls=[*(last.tool_calls or ()), call])
        else:
            self.messages.append(Message(role="assistant", tool_calls=[call], reasoning=self.taken_reasoning()))

    def taken_reasoning(self) -> str | None:
        taken, self.reasoning = self.reasoning, None
        return taken

    def add_result(self, item: InputItem, where: str) -> None:
        if item.call_id is None:
            refuse(f"{where}.call_id", "is missing; it must be the call_id of the call that this is the result of")
        if item.call_id not in self.call_ids:
            advice = "send the call itself before its result, or previous_response_id"
            refuse(f"{where}.call_id", f"no call before it has the call_id {shown(item.call_id)}; {advice}")
        if item.output is None:
            refuse(f"{where}.output", "is missing; it must be a string or a list of texts")
        text = text_of(item.output, f"{where}.output")
        self.messages.append(Message(role="tool", tool_call_id=item.call_id, content=text))


def reasoning_of(item: InputItem, where: str) -> str | None:
    """None for reasoning of another server that came as a summary, or encrypted: it cannot be read."""
    return text_of(item.content, f"{where}.content", REASONING_PARTS) or None


def text_of(content: str | list[InputPart] | None, where: str, types: Sequence[str] = TEXT_PARTS) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for i, part in enumerate(content):
        if part.type not in types:
            given = "it is missing" if part.type is None else f"got {shown(part.type)}"
            refuse(f"{where}[{i}].type", f"must be {listed(map(shown, types))}, since only text is served; {given}")
        if part.text is None:
            refuse(f"{where}[{i}].text", "is missing; it must be a string")
    return "\n".join(part.text or "" for part in content)


def refuse(where: str, text: str) -> NoReturn:
    raise RequestError(f"{where}: {text}.", param="input")
