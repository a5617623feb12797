"""ngram's hooks. There is one instance per engine: its drafter, observer and routes share an index and the corpora."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from specserve.api import ConfigError, RequestError, hookimpl
from specserve.api.files import HfTokenizer, find_root, locate_tokenizer
from specserve_ngram._native import Corpus, Index
from specserve_ngram.corpora.loading import Limits
from specserve_ngram.corpora.paths import ROOT, operator_source
from specserve_ngram.corpora.store import CorpusStore
from specserve_ngram.drafter import NgramDrafter
from specserve_ngram.observer import NgramObserver
from specserve_ngram.options import NgramOptions

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp import web

    from specserve.api import AdaptableModel, EngineConfig
    from specserve_server.engine_client import ServedEngine


@dataclass(slots=True, frozen=True)
class Parts:
    """What the drafter, the observer and the routes share."""

    index: Index
    corpora: CorpusStore
    root: Path | None


class NgramPlugin:
    """Drafts from a native index of tokens, its metrics, and routes for its corpora."""

    def __init__(self) -> None:
        self.parts: Parts | None = None
        """Set by `make_drafter`, which start-up calls before the hooks that use it."""

    @hookimpl
    def plugin_options(self) -> type[NgramOptions]:
        return NgramOptions

    @hookimpl
    def make_drafter(self, model: AdaptableModel, config: EngineConfig, options: NgramOptions) -> NgramDrafter:
        index = make_index(options)
        limits = Limits(model.vocab_size, options.max_corpus_tokens)
        make_corpus = partial(Corpus, options.match_type)
        corpora = CorpusStore(index, make_corpus, limits, max_corpora=options.max_corpora)
        self.parts = Parts(index, corpora, find_root(ROOT, options.corpus_root))
        if options.corpora:
            load_corpora(corpora, options.corpora, locate_tokenizer(config))
        return NgramDrafter(index, options.max_draft_tokens)

    @hookimpl
    def make_observer(self) -> NgramObserver:
        assert self.parts is not None
        return NgramObserver(self.parts.index, self.parts.corpora)

    @hookimpl
    def add_routes(self, app: web.Application, engine: ServedEngine) -> None:
        from specserve_ngram.corpora.routes import CorpusRoutes  # aiohttp: not for `specserve generate`

        assert self.parts is not None
        CorpusRoutes(self.parts.corpora, self.parts.root, engine.tokenizer).add_to(app)


def make_index(options: NgramOptions) -> Index:
    """A native index with the options of matching."""
    return Index(
        match_type=options.match_type,
        capacity=options.capacity,
        generations=options.generations,
        shared=options.shared,
        min_match=options.min_match,
        max_match=options.max_match,
        min_breadth=options.min_breadth,
        max_breadth=options.max_breadth,
        max_depth=options.max_depth,
        min_survival=options.min_survival,
    )


def load_corpora(store: CorpusStore, corpora: dict[str, str], tokenizer_path: Path) -> None:
    """Start loading. ConfigError for a path that is no corpus."""
    tokenizer = HfTokenizer.from_dir(tokenizer_path)
    for name, path in corpora.items():
        try:
            store.add(name, operator_source(path), tokenizer)
        except RequestError as error:
            raise ConfigError(f"ngram.corpora.{name}: {error}") from None
