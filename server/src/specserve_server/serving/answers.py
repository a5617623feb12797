"""An answer as reasoning, text and tool calls in their order, for the APIs whose events are typed.

Owns reading and sending it; what the events and the body look like, an `AnswerWriter` knows.
"""

from __future__ import annotations

from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from specserve_server.generation.output_streams import stream_outputs
from specserve_server.state.request_record import RECORD, Generation, noted_error
from specserve_server.wire.json_response import json_response
from specserve_server.wire.sse import NamedEventStream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    import msgspec
    from aiohttp import web

    from specserve_server.engine_client import EngineClient
    from specserve_server.errors import ErrorResponse
    from specserve_server.generation.choices import Choice, CompletionOutput
    from specserve_server.tools.pieces import CallPiece
    from specserve_server.tools.reading import CallReading

    Piece: TypeAlias = str | CallPiece | "ReasoningPiece"


class ReasoningPiece(NamedTuple):
    """What a model thinks before it answers."""

    text: str


class NamedEvent(Protocol):
    """A Struct that is sent under the name of its type."""

    @property
    def type(self) -> str: ...


class AnswerWriter(Protocol):
    """Turns an answer into events; `body` is the whole answer, once they are made."""

    def begin(self) -> Iterable[NamedEvent]: ...

    def add(self, piece: Piece, /) -> Iterable[NamedEvent]: ...

    def end(self) -> Iterable[NamedEvent]: ...

    def fail(self, error: ErrorResponse, /) -> NamedEvent:
        """The last event, where the answer cannot be finished."""
        ...

    def body(self) -> msgspec.Struct: ...


class AnswerReader:
    """Blanks before a call are no text. `reading`: None where the request calls no tools."""

    def __init__(self, reading: CallReading | None) -> None:
        self.calls = None if reading is None else reading.stream()
        self.blanks = ""
        self.in_text = False
        self.is_empty = True

    def push(self, output: CompletionOutput) -> list[Piece]:
        final = output.finish_reason is not None
        pieces = [output.text] if self.calls is None else self.calls.push(output.text, final=final).pieces
        found: list[Piece] = [ReasoningPiece(output.reasoning)] if output.reasoning else []
        found += [shown for piece in pieces if (shown := self.read(piece))]
        if final and self.is_empty and self.blanks:
            found.append(self.blanks)
        return found

    def read(self, piece: Piece) -> Piece:
        """The piece, with blanks that waited for it; "" for blanks that wait for text."""
        if not isinstance(piece, str):
            self.blanks, self.in_text, self.is_empty = "", False, False
            return piece
        text = self.blanks + piece
        if not self.in_text and not text.strip():
            self.blanks = text
            return ""
        self.blanks, self.in_text, self.is_empty = "", True, False
        return text


class Answer(NamedTuple):
    """A prepared request whose answer is to be sent."""

    id: str
    model: str
    choice: Choice
    reader: AnswerReader
    writer: AnswerWriter
    is_stream: bool


async def send_answer(request: web.Request, engine: EngineClient, answer: Answer) -> web.StreamResponse:
    request[RECORD].generation = Generation(answer.id, answer.model, [answer.choice], answer.is_stream)
    if not answer.is_stream:
        async with aclosing(answer_events(engine, answer)) as events:
            async for _ in events:
                pass
        return json_response(answer.writer.body())
    stream = NamedEventStream(request)
    with suppress(ConnectionResetError):  # the client has disconnected: its request is aborted by now
        async with stream:
            await stream_answer(stream, engine, answer)
    return stream.response


async def stream_answer(stream: NamedEventStream, engine: EngineClient, answer: Answer) -> None:
    """An error that precedes the first event is raised and has a status of its own."""
    try:
        async with aclosing(answer_events(engine, answer)) as events:
            async for event in events:
                await stream.send(event, event.type)
    except ConnectionResetError:
        raise
    except Exception as error:  # the status 200 is sent already
        if not stream.started:
            raise
        last = answer.writer.fail(noted_error(stream.request, error))
        await stream.send(last, last.type)


async def answer_events(engine: EngineClient, answer: Answer) -> AsyncGenerator[NamedEvent, None]:
    """The first ones come with the first output: no client takes them for the first token."""
    writer, begun = answer.writer, False
    async with aclosing(stream_outputs(engine, [answer.choice])) as outputs:
        async for _, output in outputs:
            if not begun:
                begun = True
                for event in writer.begin():
                    yield event
            for piece in answer.reader.push(output):
                for event in writer.add(piece):
                    yield event
    for event in writer.end():
        yield event
