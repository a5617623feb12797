"""The native index and its twin side by side: every call goes to both, and their answers are held together."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from specserve_ngram import _native
from twin import index as plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twin.index import NativeDraft
    from twin.tree import MatchType


def ints(values: Sequence[int]) -> array[int]:
    return array("i", values)


class Pair:
    def __init__(self, **options: Any) -> None:
        self.options = options
        self.match_type: MatchType = options["match_type"]
        self.native, self.twin = _native.Index(**options), plain.Index(**options)

    def start(self, namespace: str, prompt: Sequence[int]) -> int:
        handle = self.native.start(namespace, ints(prompt))
        assert handle == self.twin.start(namespace, prompt)
        return handle

    def step(
        self, handles: Sequence[int], tokens: Sequence[int], counts: Sequence[int], limits: Sequence[int]
    ) -> list[NativeDraft]:
        drafts = self.native.step(array("q", handles), ints(tokens), ints(counts), ints(limits))
        assert drafts == self.twin.step(handles, tokens, counts, limits)
        for draft, limit in zip(drafts, limits, strict=True):
            check_draft(draft, limit, self.options["max_depth"])
        return drafts

    def stop(self, handle: int, tokens: Sequence[int]) -> None:
        self.native.stop(handle, ints(tokens))
        self.twin.stop(handle, tokens)

    def add_corpus(self, name: str, documents: Sequence[Sequence[int]]) -> None:
        native, twin = _native.Corpus(self.match_type), plain.corpus_for(self.match_type)
        for document in documents:
            native.add(ints(document))
            twin.add(document)
        assert native.num_tokens == twin.num_tokens
        self.native.add_corpus(name, native)
        self.twin.add_corpus(name, twin)

    def remove_corpus(self, name: str) -> None:
        assert self.native.remove_corpus(name) == self.twin.remove_corpus(name)

    def check_stats(self) -> dict[str, int]:
        stats = self.native.stats()
        num_bytes = stats.pop("bytes")
        assert num_bytes > 0 or stats["requests"] == stats["generations"] == stats["corpora"] == 0
        assert stats == self.twin.stats()
        assert stats["tokens"] <= self.options["capacity"]
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
