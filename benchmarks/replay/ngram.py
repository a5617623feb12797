"""The drafter of specserve's ngram plugin: its native index, driven as the server drives it, one call per step.

Needs the plugin specserve-plugin-ngram.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from benchmarks.replay.archives import SetupError
from specserve_bench.replay.harness import Draft, DrafterVariant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specserve_ngram._native import Index

MIN_SURVIVAL = 0.05
MIN_SURVIVALS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
"""Values of the option `min_survival` for the sweep: a higher one drafts fewer nodes per accepted node."""


def variants(min_survival: float = MIN_SURVIVAL) -> list[DrafterVariant]:
    make_index = index_maker(min_survival)
    return [
        DrafterVariant("ngram", "cold", lambda: NgramDrafter(make_index(False)), reused=False),
        DrafterVariant("ngram", "cold, statistics kept", lambda: NgramDrafter(make_index(False)), reused=True),
        DrafterVariant("ngram", "warm", lambda: NgramDrafter(make_index(True)), reused=True),
    ]


class NgramDrafter:
    """`feed` only buffers: the index takes the emitted tokens and drafts in one call."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._handles = array("q", [-1])
        self._buffered = array("i")

    def start(self, prompt: Sequence[int]) -> None:
        self._handles[0] = self._index.start("", array("i", prompt))
        self._buffered = array("i")

    def propose(self, limit: int) -> Draft | None:
        tokens, self._buffered = self._buffered, array("i")
        draft = self._index.step(self._handles, tokens, array("i", [len(tokens)]), array("i", [limit]))[0]
        if draft is None:
            return None
        drafted, parents, survival = draft
        return Draft(drafted, range(-1, len(drafted) - 1) if parents is None else parents, survival)

    def feed(self, tokens: Sequence[int]) -> None:
        self._buffered.extend(tokens)

    def stop(self) -> None:
        self._index.stop(self._handles[0], self._buffered)


def index_maker(min_survival: float) -> Callable[[bool], Index]:
    """Makes an index that shares text between requests, or one that does not. SetupError without the plugin."""
    try:
        from specserve_ngram.options import NgramOptions
        from specserve_ngram.plugin import make_index
    except ImportError as error:
        raise SetupError(
            f"the ngram plugin is not installed ({error}). Install it with `pip install -e plugins/ngram`, or leave "
            "it out with --drafters arctic trie."
        ) from error
    return lambda shared: make_index(NgramOptions(shared=shared, min_survival=min_survival))
