"""Our own n-gram drafter, its native index driven as the server drives it: one call a step feeds and proposes.

Owns the adapter alone. The index is `specserve_ngram._native.Index`, of the plugin specserve-ngram.
"""

from __future__ import annotations

import importlib
from array import array
from typing import TYPE_CHECKING, Any

from benchmarks.replay.archives import MaterialError
from benchmarks.replay.harness import Contender, Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

CUTS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
"""Of stated survival, for the table of thrift: a higher one drafts less for the same accepts."""
MIN_SURVIVAL = 0.05


def contenders(min_survival: float = MIN_SURVIVAL) -> list[Contender]:
    plugin, options = load()

    def index(shared: bool) -> OurDrafter:
        return OurDrafter(plugin.make_index(options.NgramOptions(shared=shared, min_survival=min_survival)))

    return [
        Contender("ngram", "cold", lambda: index(False), keeps=False),
        Contender("ngram", "cold, table kept", lambda: index(False), keeps=True),
        Contender("ngram", "warm", lambda: index(True), keeps=True),
    ]


class OurDrafter:
    """`feed` only remembers: the index takes what was emitted and drafts what comes next in one call."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self._handles = array("q", [-1])
        self._fed = array("i")

    def start(self, prompt: Sequence[int]) -> None:
        self._handles[0] = self._index.start("", array("i", prompt))
        self._fed = array("i")

    def propose(self, limit: int) -> Draft | None:
        fed, self._fed = self._fed, array("i")
        draft = self._index.step(self._handles, fed, array("i", [len(fed)]), array("i", [limit]))[0]
        if draft is None:
            return None
        tokens, parents, survival = draft
        return Draft(tokens, range(-1, len(tokens) - 1) if parents is None else parents, survival)

    def feed(self, tokens: Sequence[int]) -> None:
        self._fed.extend(tokens)

    def stop(self) -> None:
        self._index.stop(self._handles[0], self._fed)


def load() -> tuple[Any, Any]:
    """The plugin's modules that make an index and hold its options."""
    try:
        return importlib.import_module("specserve_ngram.plugin"), importlib.import_module("specserve_ngram.options")
    except ImportError as error:
        raise MaterialError(
            f"our drafter is not installed ({error}). Install it with `pip install -e plugins/ngram`, or leave it "
            "out with --drafters arctic trie."
        ) from error
