"""The options of ngram, their ranges, and what must hold among them."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from specserve.errors import ConfigError

MOST_SOURCES = 16
"""Texts that the native index matches a request against at once: its own, the generations, the corpora."""
CORPUS_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
CORPUS_NAME_RULE = "1 to 64 of the characters A-Z a-z 0-9 . _ -"

Breadth = Annotated[int, Meta(ge=1, le=32)]


class NgramOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`--set ngram.capacity=1000000`. Lengths, depths and capacities are in tokens."""

    match_type: Literal["learned", "bfs", "prob"] = "learned"
    """Which continuations make the draft: the likeliest as learned, the most recent, or the most frequent."""
    shared: bool = True
    """Requests of one namespace draft from each other's text."""
    capacity: Annotated[int, Meta(ge=1_000, le=1_000_000_000)] = 4_000_000
    """Shared text that is kept; beyond it the oldest generation goes."""
    generations: Annotated[int, Meta(ge=2, le=MOST_SOURCES - 1)] = 4
    """Parts in which shared text is dropped, and which one request is matched against."""
    min_match: Annotated[int, Meta(ge=1, le=32)] = 1
    """Shorter matches give no draft."""
    max_match: Annotated[int, Meta(ge=1, le=65_536)] = 1024
    """How far back a match is followed."""
    min_breadth: Breadth = 1
    """Children of a node after the longest match (bfs)."""
    max_breadth: Breadth = 10
    """Children of a node at most."""
    max_depth: Annotated[int, Meta(ge=1, le=256)] = 64
    """Guesses in a row at most."""
    max_draft_tokens: Annotated[int, Meta(ge=1, le=256)] | None = None
    """Guesses per request and step at most; None: as many as the planner allows. Never more than it allows."""
    min_survival: Annotated[float, Meta(ge=0, le=1)] = 0.05
    """Guesses that are less likely to be accepted are not made."""
    corpora: dict[str, str] = {}
    """Loaded at start-up: name to path. These may lie anywhere."""
    corpus_root: str | None = None
    """The directory that REST may read corpora from; None: none, clients send documents."""
    max_corpora: Annotated[int, Meta(ge=0, le=MOST_SOURCES - 3)] = 8
    """Corpora at once; 0 refuses all."""
    max_corpus_tokens: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 10_000_000
    """Tokens of one corpus."""

    def __post_init__(self) -> None:
        for least, most in (("min_match", "max_match"), ("min_breadth", "max_breadth")):
            in_order(least, getattr(self, least), most, getattr(self, most))
        if self.capacity <= self.max_depth:
            raise ConfigError(
                f"capacity must be larger than max_depth, or no text of a draft's length could be kept; got "
                f"capacity = {self.capacity} and max_depth = {self.max_depth}. Raise capacity or lower max_depth."
            )
        if self.generations + self.max_corpora > MOST_SOURCES - 1:
            raise ConfigError(
                f"generations and max_corpora together must be at most {MOST_SOURCES - 1}; got generations = "
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


def in_order(least: str, low: int, most: str, high: int) -> None:
    if low > high:
        raise ConfigError(
            f"{least} must not exceed {most}; got {least} = {low} and {most} = {high}. Lower {least} or raise {most}."
        )
