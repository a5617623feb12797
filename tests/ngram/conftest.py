"""Corpora over a fake index, and a tokenizer whose speed a test decides."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fake_index import FakeCorpus, FakeIndex

from specserve_ngram.corpora.loading import Limits
from specserve_ngram.corpora.store import CorpusStatus, CorpusStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

sys.path += [str(Path(__file__).parent.parent / name) for name in ("text", "server")]


class Letters:
    """A token per character. While `open` is cleared it does not return; `reached` is set when it was called."""

    def __init__(self) -> None:
        self.open, self.reached = threading.Event(), threading.Event()
        self.open.set()

    def encode_in_background(self, text: str) -> list[int]:
        self.reached.set()
        assert self.open.wait(60)
        return [ord(letter) for letter in text]


@pytest.fixture
def letters() -> Iterator[Letters]:
    tokenizer = Letters()
    yield tokenizer
    tokenizer.open.set()


@pytest.fixture
def index() -> FakeIndex:
    return FakeIndex()


@pytest.fixture
def make_store(index: FakeIndex, letters: Letters) -> Iterator[Callable[..., CorpusStore]]:
    stores: list[CorpusStore] = []

    def make(*, max_corpora: int = 4, max_tokens: int = 100_000, vocab_size: int = 0x110000) -> CorpusStore:
        limits = Limits(vocab_size, max_tokens)
        stores.append(CorpusStore(index, FakeCorpus, limits, max_corpora=max_corpora))  # type: ignore[arg-type]
        return stores[-1]

    yield make
    letters.open.set()
    for store in stores:
        store.close()
        assert store.worker is None


@pytest.fixture
def store(make_store: Callable[..., CorpusStore]) -> CorpusStore:
    return make_store()


def wait_until_loaded(store: CorpusStore, name: str) -> CorpusStatus:
    deadline = time.monotonic() + 60
    while (status := store.get(name)).state == "loading":
        assert time.monotonic() < deadline, status
        time.sleep(0.001)
    return status


@pytest.fixture
def loaded() -> Callable[[CorpusStore, str], CorpusStatus]:
    """`loaded(store, name)` waits for a corpus and returns its status."""
    return wait_until_loaded
