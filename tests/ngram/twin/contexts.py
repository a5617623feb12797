"""What followed each context of some texts, found by looking at all of their tokens: no automaton.

A text is a string with a character per token, so that a context is a slice of it. Texts may share their beginning;
nothing follows the end of a text. Contexts that are suffixes of each other and end at the same positions are one state
of a suffix automaton; here they are those that occur equally often.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Literal, NamedTuple

from specserve_ngram._native import Tuning

if TYPE_CHECKING:
    from collections.abc import Iterator

Ranking = Literal["update_exclusion", "frequency", "recency"]


class Extension(NamedTuple):
    known: str  # the longest suffix of the text that occurred before
    previous_end: int | None  # where that had ended when its state was last the longest known one


class Counted(NamedTuple):
    """`token` followed `text`, whose suffixes of at least `shortest` tokens counted it."""

    text: str
    token: str
    shortest: int


class Ended(NamedTuple):
    """`text` came to its `end`, which its suffixes of at least `shortest` tokens keep."""

    text: str
    end: int | None
    shortest: int


def suffixes(text: str) -> Iterator[str]:
    """From the whole text down to the empty one."""
    return (text[begin:] for begin in range(len(text) + 1))


class Contexts:
    def __init__(self, ranking: Ranking) -> None:
        self.ranking = ranking
        self.texts = {""}  # every text, at each of its lengths
        self.occurrences = Counter([""])  # of each context: the texts that end with it
        self.counted: defaultdict[str, list[Counted]] = defaultdict(list)  # in order, by the text's last token
        self.ended: defaultdict[str, list[Ended]] = defaultdict(list)

    def extend(self, text: str, token: str, end: int | None) -> Extension:
        """`token` comes at the end of `text`, at position `end`."""
        longer = text + token
        known = self.longest_known(longer)
        extension = Extension(known, self.last_end(known))
        self.counted[text[-1:]].append(Counted(text, token, self.shortest_counted(known)))
        if longer not in self.texts:
            self.texts.add(longer)
            self.occurrences.update(suffixes(longer))
        self.ended[token].append(Ended(longer, end, len(self.shorter(known)) + 1))
        return extension

    def shortest_counted(self, known: str) -> int:
        """Contexts that the last token of `known` never followed count it. Of those that it followed, which are the
        suffixes of `known` without it, the longest states do."""
        max_states = 1 if self.ranking == "update_exclusion" else Tuning.MAX_COUNTED
        states: set[int] = set()
        for suffix in suffixes(known[:-1]) if known else ():
            states.add(self.occurrences[suffix])
            if len(states) > max_states:
                return len(suffix) + 1
        return 0

    def followers(self, context: str) -> list[str]:
        """The tokens that the context, which is not empty, counted, in order."""
        return [c.token for c in self.counted[context[-1]] if c.shortest <= len(context) and c.text.endswith(context)]

    def top(self, context: str) -> list[tuple[str, int]]:
        """The highest ranked followers and their counts; of equals the most recent one first."""
        followers = self.followers(context)
        counts, last = Counter(followers), {token: i for i, token in enumerate(followers)}
        by_count = self.ranking != "recency"
        ranked = sorted(counts, key=lambda token: (counts[token] if by_count else 0, last[token]), reverse=True)
        return [(token, counts[token]) for token in ranked[: Tuning.MAX_TOP]]

    def degree(self, context: str) -> int:
        """How many different tokens followed."""
        return len(set(self.followers(context)))

    def last_end(self, context: str) -> int | None:
        ended = reversed(self.ended[context[-1]]) if context else ()
        return next((e.end for e in ended if e.shortest <= len(context) and e.text.endswith(context)), None)

    def shorter(self, context: str) -> str:
        """The longest suffix that occurs more often."""
        return next(s for s in suffixes(context) if not s or self.occurrences[s] > self.occurrences[context])

    def longest_known(self, text: str) -> str:
        """The longest suffix that occurs."""
        return next(suffix for suffix in suffixes(text) if suffix in self.occurrences)

    def advance(self, context: str, token: str) -> str:
        """The longest known suffix after `token`. `context` was the one before."""
        return self.longest_known(context + token)
