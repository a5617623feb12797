"""What splits the text of a model that reasons, as it comes."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Split(NamedTuple):
    reasoning: str
    content: str


class ThoughtStream(Protocol):
    end: int | None
    """How many characters of the text precede the answer, marks included; None while this is not known."""

    def push(self, text: str, *, final: bool = False) -> Split:
        """The next piece of the text, with `final` the last one."""
        ...
