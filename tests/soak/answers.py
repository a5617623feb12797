"""What of an answer is determined, from a whole body or from a stream's events, and how two of them are compared.

Ids, times and usage are not: they differ between two sendings, or tell of drafts and cached blocks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from soak.cases import MESSAGES, RESPONSES


@dataclass(slots=True)
class Choice:
    text: str = ""
    calls: list[list[str]] = field(default_factory=list)
    """Name and arguments of each tool call."""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    """An entry per token, as it came."""
    finish: str | None = None
    stop: Any = None

    def begins(self, whole: Choice) -> bool:
        """Whether this is a first part of `whole`; equal where it has ended."""
        if self.finish is not None:
            return self == whole
        names = all(mine[0] == other[0] for mine, other in zip(self.calls, whole.calls, strict=False))
        arguments = all(other[1].startswith(mine[1]) for mine, other in zip(self.calls, whole.calls, strict=False))
        return (
            whole.text.startswith(self.text)
            and len(self.calls) <= len(whole.calls)
            and names
            and arguments
            and self.token_ids == whole.token_ids[: len(self.token_ids)]
            and self.logprobs == whole.logprobs[: len(self.logprobs)]
        )


@dataclass(slots=True)
class Answer:
    """Choices by their index."""

    choices: dict[int, Choice] = field(default_factory=dict)
    ended: bool = False
    """The stream had its last event; a whole body has ended."""
    error: Any = None
    """Of an error event in a stream."""

    def choice(self, index: int = 0) -> Choice:
        return self.choices.setdefault(index, Choice())

    def begins(self, whole: Answer) -> bool:
        return all(index in whole.choices and part.begins(whole.choices[index]) for index, part in self.choices.items())

    def plain(self) -> Any:
        return asdict(self)


def read_body(path: str, body: dict[str, Any]) -> Answer:
    answer = Answer(ended=True)
    if path == RESPONSES:
        add_response(answer, body)
    elif path == MESSAGES:
        choice = answer.choice()
        choice.text = "".join(block.get("text", "") for block in body["content"])
        choice.finish, choice.stop = body["stop_reason"], body["stop_sequence"]
    else:
        for one in body["choices"]:
            add_choice(answer, one, one.get("message", one))
    return answer


def add_event(path: str, answer: Answer, event: dict[str, Any]) -> None:
    """One event of a stream; [DONE] is not one."""
    if event.get("error") and event.get("object") != "response":
        answer.error = event["error"]
    elif path == RESPONSES:
        add_response_event(answer, event)
    elif path == MESSAGES:
        add_message_event(answer, event)
    else:
        for one in event["choices"]:
            add_choice(answer, one, one.get("delta", one))


def add_choice(answer: Answer, one: dict[str, Any], message: dict[str, Any]) -> None:
    """A choice of completions or chat, or its next part."""
    choice = answer.choice(one["index"])
    choice.text += message.get("text") or message.get("content") or ""
    choice.token_ids += one.get("token_ids") or []
    for place, call in enumerate(message.get("tool_calls") or []):
        place = call.get("index", place)
        while len(choice.calls) <= place:
            choice.calls.append(["", ""])
        choice.calls[place][0] += call["function"].get("name") or ""
        choice.calls[place][1] += call["function"].get("arguments") or ""
    choice.logprobs += entries(one.get("logprobs"))
    if one.get("finish_reason") is not None:
        choice.finish, choice.stop = one["finish_reason"], one["stop_reason"]


def entries(logprobs: Any) -> list[Any]:
    if not logprobs:
        return []
    if "content" in logprobs:
        return list(logprobs["content"] or [])
    columns = [
        logprobs[key] or [None] * len(logprobs["tokens"]) for key in ("tokens", "token_logprobs", "top_logprobs")
    ]
    return [list(entry) for entry in zip(*columns, strict=True)]


def add_response(answer: Answer, body: dict[str, Any]) -> None:
    choice = answer.choice()
    choice.text = "".join(part["text"] for item in body["output"] for part in item["content"])
    choice.finish = body["status"]


def add_response_event(answer: Answer, event: dict[str, Any]) -> None:
    if event["type"] == "response.output_text.delta":
        answer.choice().text += event["delta"]
    elif event["type"] in ("response.completed", "response.incomplete"):
        streamed = answer.choice().text
        add_response(answer, event["response"])
        assert answer.choice().text == streamed, "the last event has another text than the deltas"
        answer.ended = True
    elif event["type"] == "response.failed":
        answer.error = event["response"]["error"]


def add_message_event(answer: Answer, event: dict[str, Any]) -> None:
    if event["type"] == "content_block_delta":
        answer.choice().text += event["delta"].get("text", "")
    elif event["type"] == "message_delta":
        answer.choice().finish, answer.choice().stop = event["delta"]["stop_reason"], event["delta"]["stop_sequence"]
    elif event["type"] == "message_stop":
        answer.ended = True
