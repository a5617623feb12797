"""All contexts of some texts and what followed them. Twin of automaton.hpp, without an automaton.

A text is a string with a character per token, so that a context is a slice of it. Texts may share their beginning;
where one ends and another begins, nothing follows anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

Order = Literal["longest", "frequency", "recency"]
FRONT = 16  # continuations of a context that are kept in order
COUNTED = 64  # groups of contexts at which one token counts, where it counts at all of them


@dataclass(slots=True, eq=False)
class Group:
    """The contexts that end at the same places: `longest` and those of its suffixes that are longer than `shorter`."""

    longest: str
    shorter: int
    end: int | None  # where one of them ended when it last was the longest known one
    counts: dict[str, int] = field(default_factory=dict)
    front: list[str] = field(default_factory=list)  # the first continuations, in order

    def note(self, token: str, order: Order) -> None:
        """`token` followed once more. It comes before all that are not more frequent, or before all."""
        self.counts[token] = self.counts.get(token, 0) + 1
        front, count = self.front, self.counts[token]
        if token in front:
            front.remove(token)
        elif len(front) == FRONT:
            if order != "recency" and count < self.counts[front[-1]]:
                return
            front.pop()
        at = len(front)
        while at > 0 and (order == "recency" or self.counts[front[at - 1]] <= count):
            at -= 1
        front.insert(at, token)


class Extension(NamedTuple):
    known: str  # the longest context at the text's end that was known before
    seen: int | None  # where that had ended


class Contexts:
    def __init__(self, order: Order) -> None:
        self.order = order
        self.root = Group("", -1, None)
        self.groups: dict[str, Group] = {"": self.root}
        self.texts = {""}  # every text so far, at each of its lengths

    def extend(self, text: str, token: str, end: int | None) -> Extension:
        """`token` comes at the end of `text`, at place `end`."""
        self.count(text, token)
        text += token
        self.texts.add(text)
        known = self.longest_known(text)
        group = self.groups[known]
        seen = group.end
        if known:
            if group.longest != known:  # its longer contexts did not end here
                group = self.split(group, known)
            group.end = end
        if known != text:
            fresh = Group(text, len(known), end)
            for length in range(len(known) + 1, len(text) + 1):
                self.groups[text[-length:]] = fresh
        return Extension(known, seen)

    def count(self, text: str, token: str) -> None:
        """A context that does not know the token learns it; the longest that does counts it, or all that do."""
        counted = 0
        for group in self.suffix_groups(text):
            if token in group.counts:
                if counted == (1 if self.order == "longest" else COUNTED):
                    return
                counted += 1
            group.note(token, self.order)

    def split(self, group: Group, longest: str) -> Group:
        """`longest` and its suffixes leave the group, and take a copy of what it knows."""
        made = Group(longest, group.shorter, group.end, dict(group.counts), list(group.front))
        for length in range(group.shorter + 1, len(longest) + 1):
            self.groups[longest[len(longest) - length :]] = made
        group.shorter = len(longest)
        return made

    def suffix_groups(self, context: str) -> Iterator[Group]:
        """Of the context and its suffixes, the longest first."""
        group = self.groups[context]
        yield group
        while group.shorter >= 0:
            group = self.groups[group.longest[len(group.longest) - group.shorter :]]
            yield group

    def shorter(self, context: str) -> str:
        """The longest suffix that ends at more places."""
        return context[len(context) - max(0, self.groups[context].shorter) :]

    def longest_known(self, context: str) -> str:
        while context not in self.groups:
            context = context[1:]
        return context

    def advance(self, context: str, token: str) -> str:
        """The longest context that is known after `token` came. `context` is known."""
        return self.longest_known(context + token)

    def check(self) -> None:
        """Counts every context's places again: one group for those with the same, and every continuation known."""
        places: dict[str, set[str]] = {}
        for text in self.texts:
            for begin in range(len(text) + 1):
                places.setdefault(text[begin:], set()).add(text)
        assert places.keys() == self.groups.keys()
        together: dict[frozenset[str], set[Group]] = {}
        for context, group in self.groups.items():
            assert group.longest.endswith(context)
            assert len(context) > group.shorter
            together.setdefault(frozenset(places[context]), set()).add(group)
            followers = {text[len(end)] for end in places[context] for text in self.texts_after(end)}
            assert group.counts.keys() == followers
            assert len(group.front) == min(FRONT, len(followers))
        assert all(len(groups) == 1 for groups in together.values())
        assert len(together) == len(set(self.groups.values()))

    def texts_after(self, text: str) -> list[str]:
        return [longer for longer in self.texts if len(longer) == len(text) + 1 and longer.startswith(text)]
