"""The token index, in C++ (`native/`). Thread-safe; long calls let other Python threads run."""

from array import array
from typing import Literal

class Corpus:
    """Documents to match against. Built alone, for an index of the same match type, which it is then given to."""

    def __init__(self, match_type: Literal["learned", "bfs", "prob"] = "learned") -> None: ...
    def add(self, tokens: array[int]) -> None:
        """One document, array("i")."""

    @property
    def num_tokens(self) -> int: ...
    @property
    def num_bytes(self) -> int: ...

class Index:
    """The text of all requests, what they share, and the corpora."""

    def __init__(
        self,
        *,
        match_type: Literal["learned", "bfs", "prob"],
        capacity: int,
        generations: int,
        shared: bool,
        min_match: int,
        max_match: int,
        min_breadth: int,
        max_breadth: int,
        max_depth: int,
        min_survival: float,
        threads: int = 2,
    ) -> None:
        """threads: 1 or 2; how many grow the drafts of a large batch. Drafts do not depend on it."""

    def start(self, namespace: str, prompt: array[int]) -> int:
        """A request begins; prompt: array("i"). Returns its handle."""

    def step(
        self, handles: array[int], tokens: array[int], counts: array[int], limits: array[int]
    ) -> list[tuple[tuple[int, ...], tuple[int, ...] | None, tuple[float, ...]] | None]:
        """handles: array("q"), the others array("i"). Request i takes its counts[i] tokens, which lie in `tokens` one
        request after the other, and gets a draft of at most limits[i] nodes: (tokens, parents, survival), with
        parents None for a chain, or None. All requests learn and take their tokens before the first draft is grown. An
        error, such as a handle that is unknown or comes twice, comes before anything is changed."""

    def stop(self, handle: int, tokens: array[int]) -> None:
        """The last tokens of a request, array("i"); it is forgotten then."""

    def add_corpus(self, name: str, corpus: Corpus) -> None: ...
    def remove_corpus(self, name: str) -> bool: ...
    def stats(self) -> dict[str, int]:
        """tokens, bytes, generations, evicted_generations, requests, corpora, corpus_tokens."""
