"""Where a request stands in its grammar: behind its committed tokens and any path of draft tokens.

The library's matcher consumes tokens and takes back the last ones. It never gets an end-of-text token: what follows
one is known without it. V: vocabulary.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llguidance import LLMatcher


class NotAllowedError(Exception):
    """A token that the grammar does not allow was to be followed."""


class Matching:
    def __init__(self, matcher: LLMatcher, vocab_size: int, ends: frozenset[int]) -> None:
        self.matcher, self.vocab_size, self.ends = matcher, vocab_size, ends
        self.path: list[int] = []
        """What the matcher has consumed behind the committed tokens."""
        self.has_ended = False
        """Whether an end of text is committed."""
        self.bits = array("I", bytes(4 * (-(-vocab_size // 32))))
        self.bits_of: tuple[int, ...] | None = None
        """The path that `bits` is of."""

    def follow(self, path: Sequence[int]) -> bool:
        """Let the matcher stand behind this path; False where the path has an end of text, behind which nothing
        comes. Raises NotAllowedError."""
        own, count = self.path, 0
        for token in path:
            if token in self.ends:
                self.back_to(count)
                return False
            if count == len(own) or own[count] != token:
                self.back_to(count)
                if not self.matcher.try_consume_tokens([token]):
                    raise NotAllowedError(f"token {token} at place {count} of a draft is not allowed")
                own.append(token)
            count += 1
        self.back_to(count)
        return True

    def back_to(self, count: int) -> None:
        """Take back all but the first `count` tokens of the path."""
        more = len(self.path) - count
        if more > 0:
            self.matcher.rollback(more)
            del self.path[count:]

    def commit(self, tokens: Sequence[int]) -> None:
        """Raises NotAllowedError."""
        self.has_ended = self.has_ended or not self.follow(tokens)
        self.path.clear()
        self.bits_of = None

    def allowed(self, path: Sequence[int]) -> array[int]:
        """One bit per token: may it come behind the path? array("I"), valid until the next call. Behind an end of text
        only ends of text come."""
        key = tuple(path)
        if key == self.bits_of:
            return self.bits
        self.bits_of = None
        if self.has_ended or not self.follow(path) or self.matcher.is_stopped():
            self.raise_error()
            self.allow_ends_only()
        else:
            address, count = self.bits.buffer_info()
            self.matcher.unsafe_compute_mask_ptr(address, 4 * count)
            self.raise_error()
        self.bits_of = key
        return self.bits

    def allow_ends_only(self) -> None:
        self.bits = array("I", bytes(4 * len(self.bits)))
        for token in self.ends:
            self.bits[token // 32] |= 1 << token % 32

    def raise_error(self) -> None:
        """Such as a state of the grammar that has become too large."""
        if self.matcher.is_error():
            raise NotAllowedError(self.matcher.get_error().split("<")[0].strip()[:200])

    def num_allowed(self, tokens: Sequence[int]) -> int:
        """How many of these the grammar allows, one behind the other, behind the committed ones."""
        if self.has_ended:
            return 0
        self.follow(())
        return int(self.matcher.validate_tokens(list(tokens)))

    def forced_text(self) -> bytes:
        """What must come behind the committed tokens."""
        if self.has_ended:
            return b""
        self.follow(())
        return b"" if self.matcher.is_stopped() else self.matcher.compute_ff_bytes()
