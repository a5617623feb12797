"""The native index, checked: by itself, or side by side with its twin, every call going to both."""

from __future__ import annotations

from array import array
from itertools import chain
from typing import TYPE_CHECKING, Any

from specserve_ngram import _native
from twin import index as plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twin.index import NativeDraft
    from twin.tree_builder import MatchType


def ints(values: Sequence[int]) -> array[int]:
    return array("i", values)


class Native:
    """The native index alone, its answers checked for what every answer is."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.match_type: MatchType = options["match_type"]
        self.native = _native.Index(**options)

    def start(self, namespace: str, prompt: Sequence[int]) -> int:
        return self.native.start(namespace, ints(prompt))

    def step(
        self,
        handles: Sequence[int],
        tokens: Sequence[int],
        counts: Sequence[int],
        limits: Sequence[int],
        certain: Sequence[Sequence[int]] | None = None,
    ) -> list[NativeDraft]:
        ahead = () if certain is None else (ints([*chain(*certain)]), ints([*map(len, certain)]))
        drafts = self.native.step(array("q", handles), ints(tokens), ints(counts), ints(limits), *ahead)
        for draft, limit in zip(drafts, limits, strict=True):
            check_draft(draft, limit, self.options["max_depth"])
        return drafts

    def stop(self, handle: int, tokens: Sequence[int]) -> None:
        self.native.stop(handle, ints(tokens))

    def add_corpus(self, name: str, documents: Sequence[Sequence[int]]) -> None:
        corpus = _native.Corpus(self.match_type)
        for document in documents:
            corpus.add(ints(document))
        self.native.add_corpus(name, corpus)

    def remove_corpus(self, name: str) -> bool:
        return self.native.remove_corpus(name)

    def check_stats(self) -> dict[str, int]:
        stats = self.native.stats()
        assert stats["tokens"] <= self.options["capacity"]
        is_empty = stats["requests"] == stats["generations"] == stats["corpora"] == 0
        assert stats.pop("bytes") > 0 or is_empty
        return stats


class Pair(Native):
    """The native index and its twin."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.twin = plain.Index(**options)

    def start(self, namespace: str, prompt: Sequence[int]) -> int:
        handle = super().start(namespace, prompt)
        assert handle == self.twin.start(namespace, prompt)
        return handle

    def step(
        self,
        handles: Sequence[int],
        tokens: Sequence[int],
        counts: Sequence[int],
        limits: Sequence[int],
        certain: Sequence[Sequence[int]] | None = None,
    ) -> list[NativeDraft]:
        drafts = super().step(handles, tokens, counts, limits, certain)
        assert drafts == self.twin.step(handles, tokens, counts, limits, certain)
        return drafts

    def stop(self, handle: int, tokens: Sequence[int]) -> None:
        super().stop(handle, tokens)
        self.twin.stop(handle, tokens)

    def add_corpus(self, name: str, documents: Sequence[Sequence[int]]) -> None:
        super().add_corpus(name, documents)
        corpus = plain.corpus_for(self.match_type)
        for document in documents:
            corpus.add(document)
        self.twin.add_corpus(name, corpus)

    def remove_corpus(self, name: str) -> bool:
        removed = super().remove_corpus(name)
        assert removed == self.twin.remove_corpus(name)
        return removed

    def check_stats(self) -> dict[str, int]:
        stats = super().check_stats()
        assert stats == self.twin.stats()
        return stats


def check_draft(draft: NativeDraft, limit: int, max_depth: int) -> None:
    """What every draft is, whatever was learned."""
    if draft is None:
        return
    tokens, parents, survival = draft
    if parents is None:
        parents = tuple(range(-1, len(tokens) - 1))
    assert 0 < len(tokens) <= limit
    assert len(parents) == len(survival) == len(tokens)
    depths: list[int] = []
    for i, parent in enumerate(parents):
        assert -1 <= parent < i
        depths.append(1 if parent < 0 else depths[parent] + 1)
        assert 0 < survival[i] <= (1 if parent < 0 else survival[parent])
    assert max(depths) <= max_depth
    assert len(set(zip(parents, tokens, strict=True))) == len(tokens)
