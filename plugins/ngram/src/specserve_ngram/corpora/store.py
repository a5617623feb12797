"""The named corpora of one engine: a thread loads them one after the other, and the index uses those that are ready.

Owns names, states and the thread, which exists only while there is something to load. Every method may be called from
any thread; none waits for a corpus.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import os
import sys
import threading
import weakref
from collections import Counter, deque
from typing import TYPE_CHECKING, Protocol, get_args

import msgspec

from specserve.api import RequestError, ShuttingDownError
from specserve_ngram.corpora.errors import CorpusConflictError, CorpusError, UnknownCorpusError
from specserve_ngram.corpora.loading import Limits, Load, State, build
from specserve_ngram.options import CORPUS_NAME, CORPUS_NAME_RULE

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve_ngram._native import Corpus, Index
    from specserve_ngram.corpora.documents import Source

logger = logging.getLogger(__name__)
JOIN_TIMEOUT_SECONDS = 30.0
"""How long `close` waits for the thread, which stops between two slices unless the disk hangs."""


class Tokenizer(Protocol):
    """What loading needs of the model's tokenizer."""

    def encode_in_background(self, text: str) -> list[int]: ...


class CorpusStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of a corpus. `reason` says why it failed."""

    name: str
    state: State
    source: str
    bytes_read: int
    bytes_total: int
    tokens: int
    reason: str | None


class CorpusStore:
    """`make_corpus` is the native class; tests pass another."""

    def __init__(self, index: Index, make_corpus: Callable[[], Corpus], limits: Limits, *, max_corpora: int) -> None:
        self.index, self.make_corpus, self.limits, self.max_corpora = index, make_corpus, limits, max_corpora
        self.lock = threading.Lock()
        self.loads: dict[str, Load] = {}
        self.queue: deque[Load] = deque()
        self.serial = itertools.count()
        self.worker: threading.Thread | None = None
        self.closed = False
        # The thread must not run native code while the interpreter is finalized.
        atexit.register(close_at_exit, weakref.ref(self))

    # --- for callers --------------------------------------------------------------------------------

    def add(self, name: str, source: Source, tokenizer: Tokenizer) -> CorpusStatus:
        """Start loading. The name of a corpus that failed may be used again."""
        if not CORPUS_NAME.fullmatch(name):
            raise CorpusError(f"name must be {CORPUS_NAME_RULE}; got {name[:100]!r}.", param="name")
        with self.lock:
            old = self.loads.get(name)
            if old is not None and old.state != "failed":
                raise CorpusConflictError(f"corpus {name} is {old.state} already; delete it first.", param="name")
            if old is None and len(self.loads) >= self.max_corpora:
                raise CorpusConflictError(
                    f"there are {len(self.loads)} corpora, and ngram.max_corpora allows {self.max_corpora}. Delete one."
                )
            if self.closed:
                raise ShuttingDownError("the server is shutting down.")
            key = f"{name}#{next(self.serial)}"
            load = Load(name, key, source.label, source.size, source, tokenizer.encode_in_background)
            self.loads[name] = load
            self.queue.append(load)
            if self.worker is None:
                self.worker = threading.Thread(target=self.load_all, name="specserve-ngram-corpora", daemon=True)
                self.worker.start()
            return status(load)

    def get(self, name: str) -> CorpusStatus:
        with self.lock:
            if name not in self.loads:
                raise unknown(name)
            return status(self.loads[name])

    def all(self) -> list[CorpusStatus]:
        with self.lock:
            return [status(load) for load in self.loads.values()]

    def remove(self, name: str) -> None:
        """Stop using it, or loading it. Its memory is freed when this returns, or shortly after."""
        with self.lock:
            load = self.loads.pop(name, None)
            if load is None:
                raise unknown(name)
            load.cancelled = True
        if load.state == "ready":
            self.index.remove_corpus(load.key)

    def counts(self) -> dict[str, int]:
        """How many corpora are in each state."""
        with self.lock:
            counted = Counter(load.state for load in self.loads.values())
        return {state: counted[state] for state in get_args(State)}

    def close(self) -> None:
        """Cancel what is not loaded yet and wait for the thread. Corpora in use stay in use."""
        with self.lock:
            self.closed = True
            self.queue.clear()
            for load in self.loads.values():
                load.cancelled = load.cancelled or load.state == "loading"
            worker = self.worker
        if worker is not None:
            worker.join(JOIN_TIMEOUT_SECONDS)

    # --- in the thread ------------------------------------------------------------------------------

    def load_all(self) -> None:
        lower_priority()
        while (load := self.next_load()) is not None:
            try:
                corpus = build(load, self.make_corpus, self.limits)
                if corpus is not None:
                    self.finish(load, corpus)
            except (RequestError, OSError) as error:
                self.fail(load, getattr(error, "strerror", None) or str(error))
            except MemoryError:
                self.fail(load, "there is not enough memory for it.")
            except Exception as error:  # a bug: the thread goes on with the next corpus
                logger.exception("corpus %s", load.name)
                self.fail(load, f"internal error ({type(error).__name__}); the server's log has the details.")

    def next_load(self) -> Load | None:
        """Checking the queue and ending the thread are atomic: `add` sees a thread that will check again, or none."""
        with self.lock:
            if not self.queue:
                self.worker = None
                return None
            return self.queue.popleft()

    def finish(self, load: Load, corpus: Corpus) -> None:
        with self.lock:
            if load.cancelled:
                return
            self.index.add_corpus(load.key, corpus)
            load.state, load.bytes_read = "ready", load.bytes_total
            load.source = load.encode = None
        logger.info("corpus %s is ready: %d tokens", load.name, load.tokens)

    def fail(self, load: Load, reason: str) -> None:
        with self.lock:
            load.state, load.reason = "failed", reason
            load.source = load.encode = None
        if not load.cancelled:
            logger.warning("corpus %s cannot be used: %s", load.name, reason)


def status(load: Load) -> CorpusStatus:
    return CorpusStatus(
        name=load.name,
        state=load.state,
        source=load.label,
        bytes_read=load.bytes_read,
        bytes_total=load.bytes_total,
        tokens=load.tokens,
        reason=load.reason,
    )


def unknown(name: str) -> UnknownCorpusError:
    return UnknownCorpusError(f"there is no corpus {name[:100]!r}; GET /v1/ngram/corpora lists them.", param="name")


def lower_priority() -> None:
    """Give this thread, and those that it starts, idle priority (SCHED_IDLE). Linux only.

    A step of the engine waits for its slowest thread. With as many threads as cores, the demo model generated a tenth
    of its tokens per second beside a loader of normal priority, and nine tenths or more beside one of idle priority.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def close_at_exit(reference: weakref.ref[CorpusStore]) -> None:
    store = reference()
    if store is not None:
        store.close()
