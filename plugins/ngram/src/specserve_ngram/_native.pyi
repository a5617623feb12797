"""The token index, in C++ (`native/`). Thread-safe; long calls let other Python threads run."""

import enum
from array import array
from typing import ClassVar, Literal

class Corpus:
    """Documents to match against, built for an index of the same match type. Adding it to an index freezes it."""

    def __init__(self, match_type: Literal["learned", "bfs", "prob"] = "learned") -> None: ...
    def add(self, tokens: array[int]) -> None:
        """One document, array("i")."""

    @property
    def num_tokens(self) -> int: ...
    @property
    def num_bytes(self) -> int: ...

class Index:
    """The text of all requests, the text that they share, and the corpora."""

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
        """threads: 1 or 2; how many build the drafts of a large batch. Drafts do not depend on it."""

    def start(self, namespace: str, prompt: array[int]) -> int:
        """Start a request; prompt: array("i"). Returns its handle."""

    def step(
        self,
        handles: array[int],
        tokens: array[int],
        counts: array[int],
        limits: array[int],
        certain: array[int] | None = None,
        certain_counts: array[int] | None = None,
    ) -> list[tuple[tuple[int, ...], tuple[int, ...] | None, tuple[float, ...]] | None]:
        """Commit counts[i] tokens of request i, which lie in `tokens` one request after the other, and draft at most
        limits[i] nodes for it. handles: array("q"), the others array("i"). A draft is (tokens, parents, survival), with
        parents None for a chain; None if there is nothing to draft. All requests commit before the first draft is
        built. `certain`, likewise with `certain_counts`: tokens that are certain to come next; the draft is of what
        follows them. An error, such as a handle that is unknown or comes twice, is raised before anything is
        changed."""

    def stop(self, handle: int, tokens: array[int]) -> None:
        """Commit the last tokens of a request, array("i"), and forget its handle."""

    def add_corpus(self, name: str, corpus: Corpus) -> None: ...
    def remove_corpus(self, name: str) -> bool: ...
    def stats(self) -> dict[str, int]:
        """tokens, bytes, generations, evicted_generations, requests, corpora, corpus_tokens."""

class Origin(enum.Enum):
    """What proposes a candidate for the next token."""

    OWN_TEXT = 0
    SHARED_TEXT = 1
    CORPUS = 2
    ALIGNMENT = 3

class Relation(enum.Enum):
    """What the alignment of the text with an earlier part of itself predicts about a candidate."""

    UNALIGNED = 0
    PREDICTED = 1
    MISMATCH = 2
    AFTER_INSERTION = 3
    AFTER_SUBSTITUTION = 4
    AFTER_DELETION = 5
    DIVERGED = 6

class Tuning:
    """Constants and priors that the reference implementation in tests/ngram/twin shares. The headers document them."""

    MAX_TOP: ClassVar[int]
    MAX_COUNTED: ClassVar[int]
    MAX_SOURCES: ClassVar[int]
    MAX_CONTEXTS: ClassVar[int]
    MIN_CHARGE: ClassVar[int]
    REMATCH_TOKENS: ClassVar[int]
    PARALLEL_DRAFTS: ClassVar[int]
    SEARCH_WINDOW: ClassVar[int]
    MAX_DIVERGENCE: ClassVar[int]
    REALIGN_LENGTH: ClassVar[int]
    HIT_RATE_UPDATE: ClassVar[float]
    MIN_MASS: ClassVar[float]
    PROMISING_FACTOR: ClassVar[float]
    MAX_MISSES: ClassVar[int]
    LEARNED_PER_CONTEXT: ClassVar[int]
    ESCAPE_PROBABILITY: ClassVar[float]
    LENGTH_BOUNDS: ClassVar[tuple[int, ...]]
    RANK_BUCKETS: ClassVar[int]
    COUNT_BUCKETS: ClassVar[int]
    RUN_BUCKETS: ClassVar[int]
    HIT_RATE_BUCKETS: ClassVar[int]
    POINT: ClassVar[int]
    GLOBAL_DECAY_SHIFT: ClassVar[int]
    REQUEST_DECAY_SHIFT: ClassVar[int]
    GLOBAL_PRIOR_TRIALS: ClassVar[int]
    REQUEST_PRIOR_TRIALS: ClassVar[int]
    GLOBAL_LEARNING_RATE: ClassVar[float]
    REQUEST_LEARNING_RATE: ClassVar[float]
    INITIAL_WEIGHT: ClassVar[float]
    MAX_PROBABILITY: ClassVar[float]
    KNOTS: ClassVar[int]
    MAX_LOG_ODDS: ClassVar[float]
    MIN_SURVIVAL: ClassVar[float]
    MAX_SURVIVAL: ClassVar[float]
    GLOBAL_DECAY: ClassVar[float]
    REQUEST_DECAY: ClassVar[float]
    GLOBAL_CURVE_TRIALS: ClassVar[float]
    REQUEST_CURVE_TRIALS: ClassVar[float]
    MIN_OUTCOME_WEIGHT: ClassVar[float]

    @staticmethod
    def prior_by_origin(origin: Origin, length: int, is_first: bool, /) -> float: ...
    @staticmethod
    def prior_by_length(origin: Origin, length: int, relation: Relation, run: int, /) -> float: ...
    @staticmethod
    def prior_by_rank(origin: Origin, rank: int, relation: Relation, degree: int, count: int, /) -> float: ...
