"""The options of ngram, their ranges, and the checks that involve several of them."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from specserve.api import ConfigError, RequestError
from specserve.api.files import find_root
from specserve_ngram._native import Tuning
from specserve_ngram.corpora.paths import operator_source

MAX_SOURCES = Tuning.MAX_SOURCES
"""Texts that a request is matched against: its own, the generations of its namespace and the corpora."""
CORPUS_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
CORPUS_NAME_RULE = "1 to 64 of the characters A-Z a-z 0-9 . _ -"

Breadth = Annotated[int, Meta(ge=1, le=32)]


class NgramOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`--set ngram.capacity=1000000`. Lengths, depths and capacities are in tokens."""

    match_type: Literal["learned", "bfs", "prob"] = "learned"
    """Which continuations are drafted: the most probable as learned, the most recent, or the most frequent."""
    shared: bool = True
    """Requests of one namespace draft from each other's text."""
    capacity: Annotated[int, Meta(ge=1_000, le=1_000_000_000)] = 4_000_000
    """Shared text that is kept; beyond it the oldest generation is evicted."""
    generations: Annotated[int, Meta(ge=2, le=MAX_SOURCES - 1)] = 4
    """Parts in which shared text is evicted."""
    min_match: Annotated[int, Meta(ge=1, le=32)] = 1
    """Shortest match that is drafted from."""
    max_match: Annotated[int, Meta(ge=1, le=65_536)] = 1024
    """Longest match."""
    min_breadth: Breadth = 1
    """Children of a node after the longest match (bfs)."""
    max_breadth: Breadth = 10
    """Children of a node at most."""
    max_depth: Annotated[int, Meta(ge=1, le=256)] = 64
    """Levels of a draft at most."""
    max_draft_tokens: Annotated[int, Meta(ge=1, le=256)] | None = None
    """Draft tokens per request and step at most, below the planner's own limit; None: that limit."""
    min_survival: Annotated[float, Meta(ge=0, le=1)] = 0.05
    """Draft tokens that are less likely to be accepted are not drafted."""
    corpora: dict[str, str] = {}
    """Loaded at start-up: name to path, which may be anywhere."""
    corpus_root: str | None = None
    """The directory that clients may have corpora read from; None: they can only send documents."""
    max_corpora: Annotated[int, Meta(ge=0, le=MAX_SOURCES - 3)] = 8
    """Corpora at once; 0 refuses all."""
    max_corpus_tokens: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 10_000_000
    """Tokens of one corpus."""

    def __post_init__(self) -> None:
        for low, high in (("min_match", "max_match"), ("min_breadth", "max_breadth")):
            check_order(low, getattr(self, low), high, getattr(self, high))
        if self.capacity <= self.max_depth:
            raise ConfigError(
                f"capacity must be larger than max_depth, or no text of a draft's length could be kept; got "
                f"capacity = {self.capacity} and max_depth = {self.max_depth}. Raise capacity or lower max_depth."
            )
        if self.generations + self.max_corpora > MAX_SOURCES - 1:
            raise ConfigError(
                f"generations and max_corpora together must be at most {MAX_SOURCES - 1}; got generations = "
                f"{self.generations} and max_corpora = {self.max_corpora}. Lower one of them."
            )
        if len(self.corpora) > self.max_corpora:
            raise ConfigError(
                f"corpora names {len(self.corpora)} and max_corpora allows {self.max_corpora}. "
                "Name fewer, or raise max_corpora."
            )
        for name in self.corpora:
            if not CORPUS_NAME.fullmatch(name):
                raise ConfigError(f"corpora: {name!r} is not a corpus name; use {CORPUS_NAME_RULE}.")
        # wrong paths are told before the model is loaded
        for name, path in self.corpora.items():
            check_file(name, path)
        find_root("ngram.corpus_root", self.corpus_root)


def check_file(name: str, path: str) -> None:
    """Raises ConfigError where the corpus cannot be read."""
    try:
        operator_source(path)
    except RequestError as error:
        raise ConfigError(f"ngram.corpora.{name}: {error}") from None


def check_order(low: str, min_value: int, high: str, max_value: int) -> None:
    if min_value > max_value:
        raise ConfigError(
            f"{low} must not exceed {high}; got {low} = {min_value} and {high} = {max_value}. "
            f"Lower {low} or raise {high}."
        )
