"""From input items, and from output items that come back, to the messages of a chat."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.errors import RequestError
from specserve.limits import MAX_MESSAGES
from specserve.server.request_bodies import Message
from specserve.server.responses.bodies import InputItem
from specserve.server.responses.tools import custom_arguments, full_name
from specserve.server.tools.arguments import decode_arguments
from specserve.server.tools.bodies import CalledFunction, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specserve.server.responses.bodies import InputPart

ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
"""Of an item, and what chat templates call it."""
TEXTS = ("input_text", "output_text", "text")
REASONING_TEXTS = ("reasoning_text",)
CALLS, RESULTS = ("function_call", "custom_tool_call"), ("function_call_output", "custom_tool_call_output")


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
    """The conversation with the answer."""
    return Conversation(messages).add_items(output)


def with_references(
    given: str | list[InputItem] | None, find: Callable[[str | None], InputItem]
) -> str | list[InputItem] | None:
    """The input, with stored items in place of references to them."""
    if not isinstance(given, list):
        return given
    return [find(item.id) if item.type == "item_reference" else item for item in given]


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
                kinds = f"message, reasoning, item_reference, {', '.join((*CALLS, *RESULTS))}"
                text = f"items of type {item.type!r} are not served; {kinds} are. Leave it out"
                raise RequestError(f"{where}: {text}.", param="input")
        return self.messages

    def add_message(self, item: InputItem, where: str) -> None:
        """Text behind calls joins their message: templates expect the results right behind it."""
        role = ROLES.get(item.role or "")
        if role is None:
            raise RequestError(f"{where}: role must be one of {', '.join(ROLES)}; got {item.role!r}.", param="input")
        if item.content is None:
            advice = 'it must be a string or a list of texts. Send "" for an empty text'
            raise RequestError(f"{where}.content: is missing; {advice}.", param="input")
        text = text_of(item.content, where)
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
            raise RequestError(f"{where}: a {item.type} needs call_id and name.", param="input")
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
        if item.call_id not in self.call_ids:
            raise RequestError(f"{where}: no call before it has the call_id {item.call_id!r}.", param="input")
        if item.output is None:
            raise RequestError(f"{where}.output: is missing; it must be a string or a list of texts.", param="input")
        text = text_of(item.output, where)
        self.messages.append(Message(role="tool", tool_call_id=item.call_id, content=text))


def reasoning_of(item: InputItem, where: str) -> str | None:
    """None for reasoning of another server that came as a summary, or encrypted: it cannot be read."""
    return text_of(item.content, where, REASONING_TEXTS) or None


def text_of(content: str | list[InputPart] | None, where: str, types: Sequence[str] = TEXTS) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.type not in types:
            raise RequestError(
                f"{where}: content of type {part.type!r} is not served; only text is: {', '.join(types)}.",
                param="input",
            )
        if part.text is None:
            raise RequestError(f"{where}: content of type {part.type} needs a text.", param="input")
    return "\n".join(part.text or "" for part in content)
