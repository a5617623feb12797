"""All requests and the text that they share. Twin of index.hpp, with the interface of `_native.pyi`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_ngram._native import Tuning
from twin.candidates import CandidateLimits
from twin.request import GlobalStatistics, Request, Settings
from twin.shared_text import Corpus, CorpusEntry, SharedText
from twin.tree_builder import DraftOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from twin.contexts import Ranking
    from twin.tree_builder import DraftNode, MatchType

RANKINGS: dict[MatchType, Ranking] = {"learned": "update_exclusion", "prob": "frequency", "bfs": "recency"}

NativeDraft = tuple[tuple[int, ...], tuple[int, ...] | None, tuple[float, ...]] | None


def corpus_for(match_type: MatchType) -> Corpus:
    return Corpus(RANKINGS[match_type])


def native_draft(nodes: Sequence[DraftNode]) -> NativeDraft:
    if not nodes:
        return None
    parents = tuple(node.parent for node in nodes)
    is_chain = parents == tuple(range(-1, len(nodes) - 1))
    return tuple(ord(node.token) for node in nodes), None if is_chain else parents, tuple(n.survival for n in nodes)


class Index:
    def __init__(
        self,
        *,
        match_type: MatchType,
        capacity: int,
        generations: int,
        shared: bool,
        min_match: int,
        max_match: int,
        min_breadth: int,
        max_breadth: int,
        max_depth: int,
        min_survival: float,
    ) -> None:
        per_context = min(Tuning.LEARNED_PER_CONTEXT, max_breadth) if match_type == "learned" else max_breadth
        limits = CandidateLimits(min_match, max_match, per_context, max_breadth)
        ranking = RANKINGS[match_type]
        draft = DraftOptions(match_type, limits, min_breadth, max_depth, min_survival)
        self.settings = Settings(ranking, shared, draft)
        self.shared_text = SharedText(ranking, capacity, generations)
        self.everyone = GlobalStatistics()
        self.requests: dict[int, Request] = {}
        self.num_started = 0

    def start(self, namespace: str, prompt: Sequence[int]) -> int:
        request = Request(self.shared_text, self.everyone, self.settings, namespace)
        for token in prompt:
            request.add_to_text(chr(token))
        self.num_started += 1
        self.requests[self.num_started] = request
        return self.num_started

    def step(
        self,
        handles: Iterable[int],
        tokens: Iterable[int],
        counts: Iterable[int],
        limits: Iterable[int],
        certain: Sequence[Sequence[int]] | None = None,
    ) -> list[NativeDraft]:
        """All requests commit their tokens, then all update their sources, then all drafts are built.
        `certain`: of each request."""
        stepped = [(self.requests[handle], *rest) for handle, *rest in zip(handles, counts, limits, strict=True)]
        remaining = iter(tokens)
        for request, count, limit in stepped:
            for _ in range(count):
                request.commit(chr(next(remaining)))
            if limit > 0:
                request.update_calibration()
        for request, _, limit in stepped:
            if limit > 0:
                request.update_sources()
        ahead = ["".join(map(chr, some)) for some in certain or [()] * len(stepped)]
        return [
            native_draft(request.draft(limit, tokens) if limit > 0 else [])
            for (request, _, limit), tokens in zip(stepped, ahead, strict=True)
        ]

    def stop(self, handle: int, tokens: Sequence[int]) -> None:
        request = self.requests.pop(handle)
        for token in tokens:
            request.commit(chr(token))

    def add_corpus(self, name: str, corpus: Corpus) -> None:
        self.shared_text.corpora[name] = CorpusEntry(corpus)

    def remove_corpus(self, name: str) -> bool:
        return self.shared_text.corpora.pop(name, None) is not None

    def stats(self) -> dict[str, int]:
        """Without the bytes, which only the native index has."""
        shared_text = self.shared_text
        return {
            "tokens": sum(generation.num_tokens for generation in shared_text.generations),
            "generations": len(shared_text.generations),
            "evicted_generations": shared_text.num_evicted,
            "requests": len(self.requests),
            "corpora": len(shared_text.corpora),
            "corpus_tokens": sum(entry.corpus.num_tokens for entry in shared_text.corpora.values()),
        }
