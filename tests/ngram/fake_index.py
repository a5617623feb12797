"""An index that remembers what it was told, and a corpus, in Python: what the tests of the Python side talk to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable

Answer = tuple[tuple[int, ...], tuple[int, ...] | None, tuple[float, ...]] | None


def repeat_what_followed(text: list[int], limit: int) -> Answer:
    """What came after the last place where the newest token stood before."""
    for at in range(len(text) - 2, -1, -1):
        if text[at] == text[-1]:
            guess = tuple(text[at + 1 : at + 1 + limit])
            return guess, None, (0.5,) * len(guess)
    return None


@dataclass
class FakeCorpus:
    documents: list[list[int]] = field(default_factory=list)

    def add(self, tokens: array[int]) -> None:
        assert tokens.typecode == "i"
        self.documents.append(tokens.tolist())

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.documents))


@dataclass
class FakeIndex:
    """`texts` of the requests that run and `ended` of those that do not, by handle. `breaks`: the next step raises."""

    draft: Callable[[list[int], int], Answer] = repeat_what_followed
    namespaces: list[str] = field(default_factory=list)
    texts: dict[int, list[int]] = field(default_factory=dict)
    ended: dict[int, list[int]] = field(default_factory=dict)
    steps: list[tuple[list[int], list[int], list[int]]] = field(default_factory=list)
    corpora: dict[str, FakeCorpus] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    breaks: bool = False

    def start(self, namespace: str, prompt: array[int]) -> int:
        assert prompt.typecode == "i"
        self.namespaces.append(namespace)
        self.texts[len(self.namespaces)] = prompt.tolist()
        return len(self.namespaces)

    def step(self, handles: array[int], tokens: array[int], counts: array[int], limits: array[int]) -> list[Answer]:
        assert [a.typecode for a in (handles, tokens, counts, limits)] == ["q", "i", "i", "i"]
        if self.breaks:
            self.breaks = False
            raise RuntimeError("out of order")
        self.steps.append((handles.tolist(), counts.tolist(), limits.tolist()))
        answers, rest = [], tokens.tolist()
        for handle, count, limit in zip(handles, counts, limits, strict=True):
            self.texts[handle] += rest[:count]
            rest = rest[count:]
            answers.append(self.draft(self.texts[handle], limit))
        assert not rest
        return answers

    def stop(self, handle: int, tokens: array[int]) -> None:
        self.ended[handle] = [*self.texts.pop(handle), *tokens.tolist()]

    def add_corpus(self, name: str, corpus: FakeCorpus) -> None:
        assert name not in self.corpora
        self.corpora[name] = corpus

    def remove_corpus(self, name: str) -> bool:
        return self.corpora.pop(name, None) is not None

    def stats(self) -> dict[str, int]:
        tokens = sum(map(len, self.ended.values()))
        used = sum(corpus.num_tokens for corpus in self.corpora.values())
        return {
            "tokens": tokens,
            "bytes": 60 * tokens,
            "generations": 2,
            "evicted_generations": 3,
            "requests": len(self.texts),
            "corpora": len(self.corpora),
            "corpus_tokens": used,
        }
