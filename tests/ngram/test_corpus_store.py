"""Named corpora: their states, their limits, and the thread that loads them one after the other."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from specserve_ngram.corpora.documents import Documents, TextFile
from specserve_ngram.corpora.errors import CorpusConflictError, CorpusError, UnknownCorpusError
from specserve_ngram.corpora.store import CorpusStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fake_index import FakeIndex


def loader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "specserve-ngram-corpora"]


def test_a_corpus_is_used_once_it_is_ready(store: CorpusStore, index: FakeIndex, letters: Any, loaded: Any) -> None:
    letters.open.clear()
    first = store.add("docs", Documents(["ab", "c"]), letters)
    assert (first.state, first.source, first.bytes_total, first.tokens) == ("loading", "documents", 3, 0)
    assert letters.reached.wait(60)
    assert index.corpora == {}
    letters.open.set()
    last = loaded(store, "docs")
    assert (last.state, last.bytes_read, last.bytes_total, last.tokens, last.reason) == ("ready", 3, 3, 3, None)
    assert [corpus.documents for corpus in index.corpora.values()] == [[[97, 98], [99]]]


def test_progress_is_shown_while_it_loads(store: CorpusStore, letters: Any, tmp_path: Path) -> None:
    class Slow:
        def __init__(self) -> None:
            self.turns = threading.Semaphore(3)

        def encode_in_background(self, text: str) -> list[int]:
            assert self.turns.acquire(timeout=60)
            return [1] * len(text)

    slow = Slow()
    (tmp_path / "a.txt").write_text("word\n" * 20_000)
    store.add("a", TextFile(tmp_path / "a.txt", "a.txt"), slow)
    deadline = time.monotonic() + 60
    while not (seen := store.get("a")).tokens > 40_000:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert seen.state == "loading"
    assert 40_000 < seen.bytes_read < seen.bytes_total == 100_000
    store.remove("a")
    slow.turns.release()


def test_a_long_document_reaches_the_index_in_parts(
    store: CorpusStore, index: FakeIndex, letters: Any, loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specserve_ngram.corpora.loading.MAX_TOKENS_PER_ADD", 20_000)
    store.add("long", Documents(["x" * 50_000, "y"]), letters)
    assert loaded(store, "long").tokens == 50_001
    (corpus,) = index.corpora.values()
    assert [len(document) for document in corpus.documents] == [32_768, 17_232, 1]


def test_two_load_one_after_the_other(store: CorpusStore, index: FakeIndex, letters: Any, loaded: Any) -> None:
    letters.open.clear()
    for name in ("a", "b"):
        store.add(name, Documents([name]), letters)
    assert len(loader_threads()) == 1
    assert store.counts() == {"loading": 2, "ready": 0, "failed": 0}
    letters.open.set()
    assert [loaded(store, name).state for name in ("a", "b")] == ["ready", "ready"]
    assert len(index.corpora) == 2


def test_no_thread_waits_where_nothing_loads(store: CorpusStore, letters: Any, loaded: Any) -> None:
    store.add("a", Documents(["a"]), letters)
    loaded(store, "a")
    deadline = time.monotonic() + 60
    while loader_threads():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    store.add("b", Documents(["b"]), letters)
    assert loaded(store, "b").state == "ready"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such rank")
def test_loading_has_idle_priority(store: CorpusStore, letters: Any) -> None:
    letters.open.clear()
    store.add("a", Documents(["a"]), letters)
    assert letters.reached.wait(60)
    (thread,) = loader_threads()
    assert os.sched_getscheduler(thread.native_id or 0) == os.SCHED_IDLE
    assert os.sched_getscheduler(0) != os.SCHED_IDLE


def test_a_name_is_taken_until_it_is_removed(store: CorpusStore, index: FakeIndex, letters: Any, loaded: Any) -> None:
    store.add("a", Documents(["a"]), letters)
    loaded(store, "a")
    with pytest.raises(CorpusConflictError, match="corpus a is ready already; delete it first"):
        store.add("a", Documents(["b"]), letters)
    store.remove("a")
    assert index.corpora == {}
    store.add("a", Documents(["b"]), letters)
    loaded(store, "a")
    assert [corpus.documents for corpus in index.corpora.values()] == [[[98]]]


def test_removing_one_that_loads_cancels_it(store: CorpusStore, index: FakeIndex, letters: Any, loaded: Any) -> None:
    letters.open.clear()
    store.add("a", Documents(["a"]), letters)
    assert letters.reached.wait(60)
    store.remove("a")
    with pytest.raises(UnknownCorpusError):
        store.get("a")
    store.add("a", Documents(["b"]), letters)
    letters.open.set()
    assert loaded(store, "a").state == "ready"
    assert [corpus.documents for corpus in index.corpora.values()] == [[[98]]]


def test_removing_one_that_waits_keeps_it_from_loading(store: CorpusStore, letters: Any, loaded: Any) -> None:
    letters.open.clear()
    store.add("a", Documents(["a"]), letters)
    waiting = Documents(["b"])
    store.add("b", waiting, letters)
    store.remove("b")
    letters.open.set()
    loaded(store, "a")
    assert store.counts() == {"loading": 0, "ready": 1, "failed": 0}


def test_a_corpus_with_too_many_tokens_fails_and_is_not_half_used(
    make_store: Callable[..., CorpusStore], index: FakeIndex, letters: Any, loaded: Any
) -> None:
    store = make_store(max_tokens=10)
    store.add("a", Documents(["ok", "x" * 9]), letters)
    assert loaded(store, "a").state == "failed"
    assert loaded(store, "a").reason.startswith("it has more than 10 tokens. Shorten it, or raise")
    assert index.corpora == {}


def test_there_are_never_more_corpora_than_allowed(make_store: Callable[..., CorpusStore], letters: Any) -> None:
    store = make_store(max_corpora=1)
    store.add("a", Documents(["a"]), letters)
    with pytest.raises(CorpusConflictError, match=r"there are 1 corpora, and ngram\.max_corpora allows 1"):
        store.add("b", Documents(["b"]), letters)
    store.remove("a")
    store.add("b", Documents(["b"]), letters)


def test_one_that_failed_says_why_and_makes_room_for_its_name(store: CorpusStore, letters: Any, loaded: Any) -> None:
    store.add("a", Documents(["", ""]), letters)
    assert (loaded(store, "a").state, loaded(store, "a").reason) == ("failed", "it has no text.")
    store.add("a", Documents(["a"]), letters)
    assert (loaded(store, "a").state, loaded(store, "a").reason) == ("ready", None)


def test_a_token_that_the_model_does_not_have_fails_it(
    make_store: Callable[..., CorpusStore], letters: Any, loaded: Any
) -> None:
    store = make_store(vocab_size=98)
    store.add("a", Documents(["abc"]), letters)
    assert loaded(store, "a").reason == "its text gives token 99; this model's vocabulary ends at 97."


def test_a_file_that_goes_away_fails_it(store: CorpusStore, letters: Any, loaded: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    source = TextFile(tmp_path / "a.txt", "a.txt")
    (tmp_path / "a.txt").unlink()
    store.add("a", source, letters)
    assert loaded(store, "a").state == "failed"
    assert "was moved or replaced" in loaded(store, "a").reason


def test_a_fault_of_ours_is_logged_and_the_next_corpus_loads(
    store: CorpusStore, letters: Any, loaded: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def encode_in_background(self, text: str) -> list[int]:
            raise KeyError("merge")

    store.add("a", Documents(["a"]), Broken())
    store.add("b", Documents(["b"]), letters)
    assert loaded(store, "a").reason == "internal error (KeyError); the server's log has the details."
    assert loaded(store, "b").state == "ready"
    assert "KeyError: 'merge'" in caplog.text


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 65, "ä", "a\n"])
def test_a_name_is_made_of_plain_characters(store: CorpusStore, letters: Any, name: str) -> None:
    with pytest.raises(CorpusError, match="name must be 1 to 64 of the characters"):
        store.add(name, Documents(["a"]), letters)


def test_a_name_that_nobody_gave_is_unknown(store: CorpusStore) -> None:
    for ask in (store.get, store.remove):
        with pytest.raises(UnknownCorpusError, match="there is no corpus 'x'"):
            ask("x")


def test_closing_gives_up_what_is_not_loaded_and_keeps_what_is(
    store: CorpusStore, index: FakeIndex, letters: Any, loaded: Any
) -> None:
    store.add("a", Documents(["a"]), letters)
    loaded(store, "a")
    letters.open.clear()
    letters.reached.clear()
    store.add("b", Documents(["b"] * 1000), letters)
    store.add("c", Documents(["c"]), letters)
    assert letters.reached.wait(60)
    closing = threading.Thread(target=store.close)
    closing.start()
    while not store.closed:
        time.sleep(0.001)
    letters.open.set()
    closing.join(60)
    assert not loader_threads()
    assert len(index.corpora) == 1


def test_a_store_without_references_is_freed(make_store: Callable[..., CorpusStore], index: FakeIndex) -> None:
    store = CorpusStore(index, list, make_store().limits, max_corpora=1)  # type: ignore[arg-type]
    gone = weakref.ref(store)
    del store
    gc.collect()
    assert gone() is None


PROGRAM = """
import itertools, time
from specserve_ngram.corpora.store import CorpusStore
from specserve_ngram.corpora.documents import Slice
from specserve_ngram.corpora.loading import Limits

class Endless:
    label, size = "endless", 1
    def slices(self):
        return (Slice("a", False, i) for i in itertools.count())

class Corpus:
    def add(self, tokens):
        pass

class Tokenizer:
    def encode_in_background(self, text):
        return [1]

store = CorpusStore(None, Corpus, Limits(10, 10**12), max_corpora=1)
store.add("endless", Endless(), Tokenizer())
while not store.get("endless").tokens:
    time.sleep(0.001)
"""


def test_an_interpreter_that_ends_does_not_wait_for_a_corpus() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
