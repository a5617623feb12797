"""What a text with calls consists of, in its order: pieces of text and pieces of calls."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class CallPiece:
    """A piece of call number `index`; `name` comes with the first."""

    index: int
    name: str | None = None
    arguments: str = ""


@dataclass(slots=True)
class Parsed:
    """`pieces`: text and calls in their order."""

    pieces: list[str | CallPiece] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(piece for piece in self.pieces if isinstance(piece, str))

    @property
    def calls(self) -> list[CallPiece]:
        return [piece for piece in self.pieces if isinstance(piece, CallPiece)]

    def add_text(self, text: str) -> None:
        if text:
            self.pieces.append(text)
