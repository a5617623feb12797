"""ngram's metrics: the state of the index and of the corpora."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve_ngram._native import Index
    from specserve_ngram.corpora.store import CorpusStore

GAUGE, COUNTER = "gauge", "counter"
STATS = {
    "tokens": ("specserve_ngram_indexed_tokens", "Tokens of shared text in the index", GAUGE),
    "bytes": ("specserve_ngram_index_bytes", "Memory of the index, corpora included", GAUGE),
    "generations": ("specserve_ngram_generations", "Generations of shared text", GAUGE),
    "evicted_generations": ("specserve_ngram_generations_evicted_total", "Generations evicted for newer text", COUNTER),
    "requests": ("specserve_ngram_requests", "Running requests in the index", GAUGE),
    "corpus_tokens": ("specserve_ngram_corpus_tokens", "Tokens of the corpora in use", GAUGE),
}
"""By key of `Index.stats`: name, help and kind of the metric."""


class NgramObserver:
    """The drafter itself commits tokens to the index."""

    observe = None

    def __init__(self, index: Index, corpora: CorpusStore) -> None:
        self.index, self.corpora = index, corpora

    def metrics(self) -> Iterator[Metric]:
        stats = self.index.stats()
        for key, (name, help, kind) in STATS.items():
            yield Metric(name, help, kind, float(stats[key]))
        for state, count in self.corpora.counts().items():
            yield Metric("specserve_ngram_corpora", "Corpora, by state", GAUGE, float(count), (("state", state),))
