"""Makes a corpus of a source: read, tokenize, index. Runs beside the step loop and lets it run.

Owns progress and the limits. The long parts, tokenizing and indexing, hold no interpreter lock. Knows nothing
about names, threads and who uses the corpus.
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

INDEXED_AT_ONCE = 65_536
"""Tokens. A longer document is indexed in parts: no match reaches across, and nobody waits long for the thread."""

State = Literal["loading", "ready", "failed"]


class Limits(NamedTuple):
    vocab_size: int
    max_tokens: int


@dataclass(slots=True, eq=False)
class Load:
    """One corpus on its way. The thread that loads writes the numbers, any thread may read them."""

    name: str
    key: str
    """What the index calls it: a name that is removed and given anew is another corpus."""
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
    """The corpus, complete; None when it was cancelled. Raises RequestError and OSError."""
    assert load.source is not None
    assert load.encode is not None
    corpus = make_corpus()
    tokens = array("i")
    for part in load.source.slices():
        if load.cancelled:
            return None
        ids = checked(load.encode(part.text), limits.vocab_size)
        load.tokens, load.bytes_read = load.tokens + len(ids), part.bytes_read
        if load.tokens > limits.max_tokens:
            raise CorpusError(
                f"it has more than {limits.max_tokens} tokens. Shorten it, or raise ngram.max_corpus_tokens."
            )
        tokens.extend(ids)
        if tokens and (part.ends or len(tokens) >= INDEXED_AT_ONCE):
            corpus.add(tokens)
            tokens = array("i")
    if not load.tokens:
        raise CorpusError("it has no text.")
    return corpus


def checked(ids: list[int], vocab_size: int) -> list[int]:
    """A tokenizer may know tokens that the model does not have."""
    if ids and max(ids) >= vocab_size:
        raise CorpusError(f"its text gives token {max(ids)}; this model's vocabulary ends at {vocab_size - 1}.")
    return ids
