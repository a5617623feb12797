"""The items of an output while they grow: reasoning, a message or a call of a function; and the events between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4

from msgspec import UNSET

from specserve_server.chat.tool_response import new_call_id
from specserve_server.responses import answer, events
from specserve_server.responses.tools import custom_input

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from specserve_server.responses.tools import ServedTool


class GrowingItem(ABC):
    """`numbers`: of the response's events."""

    prefix: ClassVar[str]

    def __init__(self, output_index: int, numbers: Iterator[int]) -> None:
        self.id = f"{self.prefix}_{uuid4().hex}"
        self.output_index, self.numbers = output_index, numbers
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def place(self) -> tuple[int, str, int]:
        """Of the next event."""
        return next(self.numbers), self.id, self.output_index

    @abstractmethod
    def shown(self, status: answer.ItemStatus) -> answer.OutputItem: ...

    def opening(self) -> Sequence[events.EventInItem]:
        return []

    @abstractmethod
    def add(self, text: str) -> Sequence[events.EventInItem]: ...

    @abstractmethod
    def closing(self) -> Sequence[events.EventInItem]: ...


class ReasoningItem(GrowingItem):
    """The text itself: it is not summarized."""

    prefix = "rs"

    def shown(self, status: answer.ItemStatus) -> answer.OutputReasoning:
        content = [] if status == "in_progress" else [answer.ReasoningText(self.text)]
        return answer.OutputReasoning(id=self.id, type="reasoning", status=status, summary=[], content=content)

    def opening(self) -> Sequence[events.EventInItem]:
        return [events.PartEvent("response.content_part.added", *self.place(), 0, answer.ReasoningText(""))]

    def add(self, text: str) -> Sequence[events.EventInItem]:
        self.pieces.append(text)
        return [events.ReasoningDeltaEvent("response.reasoning_text.delta", *self.place(), 0, text)]

    def closing(self) -> Sequence[events.EventInItem]:
        return [
            events.ReasoningDoneEvent("response.reasoning_text.done", *self.place(), 0, self.text),
            events.PartEvent("response.content_part.done", *self.place(), 0, answer.ReasoningText(self.text)),
        ]


class MessageItem(GrowingItem):
    prefix = "msg"

    def shown(self, status: answer.ItemStatus) -> answer.OutputMessage:
        content = [] if status == "in_progress" else [self.part()]
        return answer.OutputMessage(id=self.id, type="message", status=status, role="assistant", content=content)

    def part(self) -> answer.OutputText:
        return answer.OutputText(self.text, [], [])

    def opening(self) -> Sequence[events.EventInItem]:
        return [events.PartEvent("response.content_part.added", *self.place(), 0, self.part())]

    def add(self, text: str) -> Sequence[events.EventInItem]:
        self.pieces.append(text)
        return [events.TextDeltaEvent("response.output_text.delta", *self.place(), 0, text, [])]

    def closing(self) -> Sequence[events.EventInItem]:
        return [
            events.TextDoneEvent("response.output_text.done", *self.place(), 0, self.text, []),
            events.PartEvent("response.content_part.done", *self.place(), 0, self.part()),
        ]


class CallItem(GrowingItem):
    prefix = "fc"

    def __init__(self, output_index: int, numbers: Iterator[int], tool: ServedTool) -> None:
        super().__init__(output_index, numbers)
        self.call_id = new_call_id()
        self.name = tool.name
        self.namespace = UNSET if tool.namespace is None else tool.namespace

    def shown(self, status: answer.ItemStatus) -> answer.OutputItem:
        return answer.OutputCall(
            id=self.id,
            type="function_call",
            status=status,
            call_id=self.call_id,
            name=self.name,
            namespace=self.namespace,
            arguments=self.text,
        )

    def add(self, text: str) -> Sequence[events.EventInItem]:
        self.pieces.append(text)
        return [events.ArgumentsDeltaEvent("response.function_call_arguments.delta", *self.place(), text)]

    def closing(self) -> Sequence[events.EventInItem]:
        place = self.place()
        return [events.ArgumentsDoneEvent("response.function_call_arguments.done", *place, self.name, self.text)]


class CustomCallItem(CallItem):
    """Its input is known once its arguments are whole."""

    prefix = "ctc"

    def shown(self, status: answer.ItemStatus) -> answer.OutputCustomCall:
        return answer.OutputCustomCall(
            id=self.id,
            type="custom_tool_call",
            status=status,
            call_id=self.call_id,
            name=self.name,
            namespace=self.namespace,
            input=custom_input(self.text),
        )

    def add(self, text: str) -> Sequence[events.EventInItem]:
        self.pieces.append(text)
        return []

    def closing(self) -> Sequence[events.EventInItem]:
        text = custom_input(self.text)
        return [
            events.CustomInputDeltaEvent("response.custom_tool_call_input.delta", *self.place(), text),
            events.CustomInputDoneEvent("response.custom_tool_call_input.done", *self.place(), text),
        ]
