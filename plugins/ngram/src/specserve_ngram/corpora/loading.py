"""Builds a corpus from a source: reads, tokenizes, indexes.

Owns progress and limits. Tokenizing and indexing release the GIL, so that the step loop goes on. Knows nothing about
names and threads.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from specserve_ngram.corpora.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve_ngram._native import Corpus
    from specserve_ngram.corpora.documents import Source

MAX_TOKENS_PER_ADD = 65_536
"""A longer document is indexed in parts: no match spans two of them, and `close` does not wait long."""

State = Literal["loading", "ready", "failed"]


class Limits(NamedTuple):
    """Of the tokens of a corpus."""

    vocab_size: int
    max_tokens: int


@dataclass(slots=True, eq=False)
class Load:
    """The loading of one corpus. The loading thread writes the counts; any thread may read them."""

    name: str
    key: str
    """Its name in the index: a corpus that is removed and added again is another one."""
    label: str
    bytes_total: int
    source: Source | None
    encode: Callable[[str], list[int]] | None
    state: State = "loading"
    bytes_read: int = 0
    tokens: int = 0
    reason: str | None = None
    cancelled: bool = False


def build(load: Load, make_corpus: Callable[[], Corpus], limits: Limits) -> Corpus | None:
    """The complete corpus; None if it was cancelled. Raises RequestError and OSError."""
    assert load.source is not None
    assert load.encode is not None
    corpus = make_corpus()
    tokens = array("i")
    for part in load.source.slices():
        if load.cancelled:
            return None
        ids = check_vocabulary(load.encode(part.text), limits.vocab_size)
        load.tokens, load.bytes_read = load.tokens + len(ids), part.bytes_read
        if load.tokens > limits.max_tokens:
            raise CorpusError(
                f"it has more than {limits.max_tokens} tokens. Shorten it, or raise ngram.max_corpus_tokens."
            )
        tokens.extend(ids)
        if tokens and (part.ends or len(tokens) >= MAX_TOKENS_PER_ADD):
            corpus.add(tokens)
            tokens = array("i")
    if not load.tokens:
        raise CorpusError("it has no text.")
    return corpus


def check_vocabulary(ids: list[int], vocab_size: int) -> list[int]:
    """The tokens themselves. A tokenizer may have tokens that the model does not."""
    if ids and max(ids) >= vocab_size:
        raise CorpusError(f"its text gives token {max(ids)}; this model's vocabulary ends at {vocab_size - 1}.")
    return ids
