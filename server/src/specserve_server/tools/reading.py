"""How the texts of one request are read for calls: in which form, of which tools, and what is let through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specserve_server.tools.pieces import Parsed

if TYPE_CHECKING:
    from collections.abc import Collection

    from specserve_server.tools.call_stream import CallStream
    from specserve_server.tools.form import ToolForm
    from specserve_server.tools.pieces import CallPiece


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReading:
    form: ToolForm
    names: Collection[str]
    """Of the tools that may be called; a mapping has the schema of each."""
    most_calls: int | None = None
    """Later calls are left out, for a client that takes one at a time; None for any number."""
    is_all: bool = False
    """The text is calls and nothing else: the beginning of one that is cut off is no text."""

    def stream(self) -> ToolCallStream:
        return ToolCallStream(self, self.form.stream(self.names))


@dataclass(slots=True)
class ToolCallStream:
    """Of one text."""

    reading: CallReading
    stream: CallStream

    def push(self, text: str, *, final: bool = False) -> Parsed:
        return Parsed([piece for piece in self.stream.push(text, final=final).pieces if self.lets_through(piece)])

    def lets_through(self, piece: str | CallPiece) -> bool:
        if isinstance(piece, str):
            return not self.reading.is_all
        return self.reading.most_calls is None or piece.index < self.reading.most_calls

    @property
    def has_calls(self) -> bool:
        return self.stream.num_calls > 0
