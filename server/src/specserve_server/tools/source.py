"""A text that comes in pieces, as coroutines read it: each yields where it needs characters that have not come yet.

What a coroutine decides, it decides by the characters that come next, however many have come: so what it reads does not
depend on the pieces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Generator

    T = TypeVar("T")
    Reading: TypeAlias = Generator[None, None, T]


class NoCallError(Exception):
    """What was read is no call, or not all of one."""


class Source:
    """`unshown`: from where on the text was read of which no call tells; it is text where this turns out to be none."""

    __slots__ = ("at", "ended", "text", "unshown")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = self.unshown = 0
        self.ended = False

    def add(self, text: str, *, final: bool) -> None:
        self.text = self.text[self.unshown :] + text
        self.at -= self.unshown
        self.unshown, self.ended = 0, final

    def peek(self, count: int = 1) -> Reading[str]:
        """The next characters; fewer where the text ends."""
        while len(self.text) - self.at < count and not self.ended:
            yield
        return self.text[self.at : self.at + count]

    def accept(self, *words: str) -> Reading[str]:
        """The first of the words that comes next, which is read; "" where none does."""
        longest = max(map(len, words))
        while True:
            coming = self.text[self.at : self.at + longest]
            for word in words:
                if coming.startswith(word):
                    self.at += len(word)
                    return word
                if word.startswith(coming) and not self.ended:
                    break  # it may still come
            else:
                return ""
            yield

    def closes(self, *words: str) -> Reading[bool]:
        """Whether one of the words comes next, which is read; where the text ends, the beginning of one is enough."""
        if (yield from self.accept(*words)):
            return True
        coming = self.text[self.at : self.at + max(map(len, words))]
        if self.ended and any(word.startswith(coming) for word in words):
            self.at = len(self.text)
            return True
        return False

    def ends(self, *words: str) -> Reading[bool]:
        """Whether one of the words comes next, which is read. Raises NoCallError where the text ends here, or within
        one: it was cut off, and nothing of it is text."""
        if (yield from self.accept(*words)):
            return True
        coming = self.text[self.at : self.at + max(map(len, words))]
        if self.ended and any(word.startswith(coming) for word in words):
            self.at = self.unshown = len(self.text)
            raise NoCallError
        return False

    def expect(self, *words: str) -> Reading[str]:
        """Raises NoCallError where none of the words comes next."""
        word = yield from self.accept(*words)
        if not word:
            raise NoCallError
        return word

    def run(self, pattern: re.Pattern[str], most: int) -> Reading[str]:
        """The longest text that comes next and consists of characters of the pattern's class, which is read. Raises
        NoCallError where it is longer than `most`."""
        while True:
            match = pattern.match(self.text, self.at)
            end = match.end() if match else self.at
            if end - self.at > most:
                raise NoCallError
            if end < len(self.text) or self.ended:
                found, self.at = self.text[self.at : end], end
                return found
            yield

    def flow(self, pattern: re.Pattern[str], show: Callable[[str], None]) -> Reading[None]:
        """As `run`, of any length: shown as it comes."""
        while True:
            match = pattern.match(self.text, self.at)
            if match is not None and match.end() > self.at:
                found, self.at = match[0], match.end()
                show(found)
            if self.at < len(self.text) or self.ended:
                return
            yield
