"""Calls whose arguments are not written as JSON: read by a coroutine, which writes the JSON of the response.

Knows no form: a form's stream says how a call is read.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from typing import TYPE_CHECKING

from specserve_server.tools.call_stream import TriggeredStream
from specserve_server.tools.pieces import CallPiece
from specserve_server.tools.source import NoCallError, Source

if TYPE_CHECKING:
    from specserve_server.tools.pieces import Parsed
    from specserve_server.tools.source import Reading

MAX_NAME = 256
"""Characters of the name of a tool or of a parameter."""
MAX_DEPTH = 64
"""Of lists and objects within each other."""


class ReadCalls(TriggeredStream):
    """`read` is the coroutine. It says `begin_call` and `show`; what it has read since is text where it raises
    NoCallError. It ends behind the last mark that belongs to the calls."""

    source: Source
    reading: Reading[None]
    parsed: Parsed
    is_begun = False
    """Whether a piece of a call was shown since the trigger."""
    waiting: str | None = None
    """The name of a call of which nothing is shown yet."""

    @abstractmethod
    def read(self) -> Reading[None]:
        """The calls behind the trigger."""

    def opening(self, parsed: Parsed, final: bool) -> bool:
        self.source, self.waiting, self.is_begun = Source(self.trigger), None, False
        self.source.at, self.state = len(self.trigger), self.within
        self.reading = self.read()
        return True

    def within(self, parsed: Parsed, final: bool) -> bool:
        source, self.parsed = self.source, parsed
        source.add(self.held, final=final)
        self.held = ""
        try:
            next(self.reading)
        except StopIteration:
            self.held, self.state = source.text[source.at :], self.blanks
            return True
        except NoCallError:
            if not self.is_begun:
                self.held = source.text[len(self.trigger) :]
                return self.no_call(parsed)
            self.held, self.state = source.text[source.unshown :], self.text
            return True
        assert not final, "where the text has ended, a coroutine does not wait"
        return False

    # What the coroutine calls.

    def begin_call(self, name: str) -> None:
        """Raises NoCallError for a tool that may not be called."""
        if name not in self.names:
            raise NoCallError
        self.waiting = name

    def show(self, arguments: str) -> None:
        """A piece of the arguments, as JSON. All that was read is told by it."""
        if self.waiting is not None:
            self.parsed.pieces.append(CallPiece(self.num_calls, self.waiting))
            self.num_calls += 1
            self.waiting, self.is_begun = None, True
        if arguments:
            self.parsed.pieces.append(CallPiece(self.num_calls - 1, None, arguments))
        self.source.unshown = self.source.at

    def show_text(self, text: str) -> None:
        """A piece of a JSON string."""
        self.show(json_inside(text))


def json_inside(text: str) -> str:
    """As it stands between the quotes of JSON."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
