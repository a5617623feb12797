"""All requests and what they share. Twin of index.hpp, with the face that `_native.pyi` describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twin.candidates import Window
from twin.request import Experience, Session, Settings
from twin.shared_text import Corpus, Library, ShelvedCorpus
from twin.tree_builder import Limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from twin.contexts import Order
    from twin.tree_builder import DraftNode, MatchType

PER_CONTEXT = 4
ORDERS: dict[MatchType, Order] = {"learned": "longest", "prob": "frequency", "bfs": "recency"}

NativeDraft = tuple[tuple[int, ...], tuple[int, ...] | None, tuple[float, ...]] | None


def corpus_for(match_type: MatchType) -> Corpus:
    return Corpus(ORDERS[match_type])


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
        per_context = min(PER_CONTEXT, max_breadth) if match_type == "learned" else max_breadth
        window = Window(min_match, max_match, per_context, max_breadth)
        order = ORDERS[match_type]
        self.settings = Settings(order, shared, Limits(match_type, window, min_breadth, max_depth, min_survival))
        self.library = Library(order, capacity, generations)
        self.experience = Experience()
        self.sessions: dict[int, Session] = {}
        self.num_started = 0

    def start(self, namespace: str, prompt: Sequence[int]) -> int:
        session = Session(self.library, self.experience, self.settings, namespace)
        for token in prompt:
            session.enter(chr(token))
        self.num_started += 1
        self.sessions[self.num_started] = session
        return self.num_started

    def step(
        self, handles: Iterable[int], tokens: Iterable[int], counts: Iterable[int], limits: Iterable[int]
    ) -> list[NativeDraft]:
        """All requests learn and take their tokens, then all list their sources, then all drafts are grown."""
        turns = [(self.sessions[handle], *rest) for handle, *rest in zip(handles, counts, limits, strict=True)]
        coming = iter(tokens)
        for session, count, limit in turns:
            for _ in range(count):
                session.append(chr(next(coming)))
            if limit > 0:
                session.settle()
        for session, _, limit in turns:
            if limit > 0:
                session.follow_sources()
        return [native_draft(session.draft(limit) if limit > 0 else []) for session, _, limit in turns]

    def stop(self, handle: int, tokens: Sequence[int]) -> None:
        session = self.sessions.pop(handle)
        for token in tokens:
            session.append(chr(token))

    def add_corpus(self, name: str, corpus: Corpus) -> None:
        self.library.corpora[name] = ShelvedCorpus(corpus)

    def remove_corpus(self, name: str) -> bool:
        return self.library.corpora.pop(name, None) is not None

    def stats(self) -> dict[str, int]:
        """Without the bytes, which are the native index's own affair."""
        library = self.library
        return {
            "tokens": sum(generation.num_tokens for generation in library.generations),
            "generations": len(library.generations),
            "evicted_generations": library.num_evicted,
            "requests": len(self.sessions),
            "corpora": len(library.corpora),
            "corpus_tokens": sum(shelved.corpus.num_tokens for shelved in library.corpora.values()),
        }
