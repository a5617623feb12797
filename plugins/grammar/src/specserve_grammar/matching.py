"""Where a request stands in its grammar: behind its committed tokens and any path of draft tokens.

The library's matcher consumes tokens and takes back the last ones. Where a text must come next, the tokens in which
the tokenizer writes it are *forced*: no others are allowed, up to the last ones, which may be one with what follows.
Which tokens are forced depends on where the forced text begins, so it is known at every place of the path. The matcher
never gets an end-of-text token: what follows one is known without it. V: vocabulary.
"""

from __future__ import annotations

from array import array
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from llguidance import LLMatcher

Args = ParamSpec("Args")
Result = TypeVar("Result")


class NotAllowedError(Exception):
    """A token that the grammar does not allow was to be followed, or the grammar's states became too many."""


class PoisonedError(Exception):
    """The library panicked for another request with this grammar. Its matchers share a lexer; none works any more."""


def retry_if_poisoned(
    method: Callable[Concatenate[Matching, Args], Result],
) -> Callable[Concatenate[Matching, Args], Result]:
    """The method, which goes on with a grammar of this request's own after the library panicked for another."""

    @wraps(method)
    def checked(self: Matching, /, *args: Args.args, **kwargs: Args.kwargs) -> Result:
        try:
            return self.without_error(method(self, *args, **kwargs))
        except PoisonedError:
            self.start_anew()
            return self.without_error(method(self, *args, **kwargs))

    return checked


class Matching:
    """`compile_anew`: the grammar's matcher at its start, which shares nothing with those of before."""

    def __init__(
        self, matcher: LLMatcher, vocab_size: int, ends: frozenset[int], compile_anew: Callable[[], LLMatcher]
    ) -> None:
        self.matcher, self.vocab_size, self.ends = matcher, vocab_size, ends
        self.compile_anew = compile_anew
        self.committed = array("q")
        self.path: list[int] = []
        """What the matcher has consumed behind the committed tokens."""
        self.ahead: list[list[int] | None] = [None]
        """The forced tokens behind each beginning of `path`, the empty one first; the last None: not known yet."""
        self.has_ended = False
        """Whether an end of text is committed."""
        self.bits = array("I", bytes(4 * (-(-vocab_size // 32))))

    # --- moving -------------------------------------------------------------------------------------

    def follow(self, path: Sequence[int]) -> bool:
        """Let the matcher stand behind this path; False where the path has an end of text, behind which nothing
        comes. Raises NotAllowedError."""
        if not self.ends.isdisjoint(path):
            return False
        common = num_common(self.path, path)
        if common < len(self.path):
            self.matcher.rollback(len(self.path) - common)
            del self.path[common:], self.ahead[common + 1 :]
        for token in path[common:]:
            if not self.consume(token):
                raise NotAllowedError(
                    f"the grammar does not allow token {token}. Where the model chose it, no token that is allowed had "
                    "a finite logit: check the model's weights for NaN and infinities."
                )
        return True

    def consume(self, token: int) -> bool:
        """False, and nothing is consumed, where the token is not allowed."""
        ahead = self.ahead_now()
        if (ahead and token != ahead[0]) or not self.matcher.try_consume_tokens([token]):
            self.raise_error()
            return False
        self.path.append(token)
        self.ahead.append(ahead[1:] or None)
        return True

    def ahead_now(self) -> list[int]:
        """The forced tokens behind `path`."""
        ahead = self.ahead[-1]
        if ahead is None:
            has_text = not self.matcher.is_stopped() and self.matcher.compute_ff_bytes()
            ahead = self.ahead[-1] = self.matcher.compute_ff_tokens() if has_text else []
        return ahead

    @retry_if_poisoned
    def commit(self, tokens: Sequence[int]) -> None:
        """Raises NotAllowedError."""
        if self.has_ended:
            return
        has_ended = not self.follow(tokens)
        self.raise_error()
        self.has_ended = has_ended
        self.committed.extend(tokens)
        self.path.clear()
        del self.ahead[:-1]

    def start_anew(self) -> None:
        """Raises NotAllowedError where the library panics for this request too."""
        self.matcher = self.compile_anew()
        self.path, self.ahead = [], [None]
        self.follow(self.committed)
        self.path.clear()
        del self.ahead[:-1]

    def without_error(self, result: Result) -> Result:
        """The library's functions return nothing, or no, where they fail."""
        self.raise_error()
        return result

    def raise_error(self) -> None:
        """Such as a state of the grammar that has become too large."""
        if not self.matcher.is_error():
            return
        reason = self.matcher.get_error().split("<")[0].strip()[:200]
        if "PoisonError" in reason:
            raise PoisonedError
        if reason.startswith("panic"):
            raise NotAllowedError(
                f"the grammar library failed on this grammar behind {len(self.committed)} tokens; {reason}. That is a "
                "fault of llguidance, and no other request is harmed. Write the grammar another way: lazy parts of one "
                "character are known to fail."
            )
        raise NotAllowedError(reason)

    # --- what may come ------------------------------------------------------------------------------

    def ends_at(self, path: Sequence[int]) -> bool:
        """May nothing but an end of text come behind the path? Else the matcher stands behind it."""
        if self.has_ended or not self.follow(path):
            return True
        stopped = bool(self.matcher.is_stopped())
        if stopped:
            self.raise_error()
        return stopped

    @retry_if_poisoned
    def forced(self, path: Sequence[int]) -> int | None:
        """The only token that may come behind the path; None where several may, or an end of text."""
        if self.ends_at(path):
            return None
        ahead = self.ahead_now()
        return ahead[0] if ahead else None

    @retry_if_poisoned
    def allows(self, path: Sequence[int], token: int) -> bool:
        """May the token come behind the path? If so, the matcher stands behind it afterwards."""
        if self.ends_at(path):
            return token in self.ends
        if token in self.ends:
            return not self.ahead_now() and bool(self.matcher.is_accepting())
        return self.consume(token)

    @retry_if_poisoned
    def allowed(self, path: Sequence[int]) -> array[int]:
        """One bit per token: may it come behind the path? array("I"), valid until the next call."""
        if self.ends_at(path):
            self.bits = array("I", bytes(4 * len(self.bits)))
            for token in self.ends:
                self.bits[token // 32] |= 1 << token % 32
            return self.bits
        address, count = self.bits.buffer_info()
        self.matcher.unsafe_compute_mask_ptr(address, 4 * count)
        return self.bits

    @retry_if_poisoned
    def num_allowed(self, tokens: Sequence[int]) -> int:
        """How many of these the grammar allows, one behind the other, behind the committed ones."""
        if self.ends_at(()):
            return 0
        ahead = self.ahead_now()
        common = num_common(ahead, tokens)
        if common < min(len(ahead), len(tokens)):
            return common
        return int(self.matcher.validate_tokens(list(tokens)))

    @retry_if_poisoned
    def coming(self) -> tuple[list[int], bytes]:
        """What must come behind the committed tokens: the forced tokens, and all of the text."""
        if self.ends_at(()):
            return [], b""
        return self.ahead_now(), self.matcher.compute_ff_bytes()


def num_common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many of their first tokens are the same."""
    for i, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return i
    return min(len(a), len(b))
