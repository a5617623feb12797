"""The processes of ranks 1 and up: started, watched, ended. They end with this process, however it ends.

Each is in a session of its own, so that Ctrl-C reaches this process alone, and ends itself when its standard input
does. When one ends unasked all end: the others would wait for it in their next collective.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from specserve.api import SpecserveError
from specserve_tensor_parallel.messages import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from multiprocessing.connection import Connection

    from specserve_tensor_parallel.messages import Message

WORKER = "specserve_tensor_parallel.worker"
LAST_LINES = 8
DEATH_SECONDS = 5.0
"""How long a broken connection may come before the end of the process that broke it."""


class RankLostError(SpecserveError):
    """A rank has ended, or is out of step with the others: nothing can be computed any more."""


class Rank(NamedTuple):
    """`last_lines`: what it wrote to standard error."""

    number: int
    process: subprocess.Popen[bytes]
    connection: Connection[bytes, bytes]
    sending: threading.Lock
    last_lines: deque[str]


@dataclass(slots=True)
class Fate:
    """What became of the ranks; shared with the threads that watch them, which must not keep the ranks alive."""

    closing: bool = False
    lost: RankLostError | None = None
    """The first loss; the others follow from it."""
    told: threading.Event = field(default_factory=threading.Event)
    on_loss: list[Callable[[], None]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_over(self) -> bool:
        return self.closing or self.lost is not None

    def lose(self, text: str) -> RankLostError:
        """Tell those who wait. The first loss counts."""
        with self.lock:
            first = self.lost is None
            self.lost = self.lost or RankLostError(text)
        self.told.set()
        for call in list(self.on_loss) if first else ():
            call()
        return self.lost


class Ranks:
    """Ranks 1 and up. Any thread may send."""

    def __init__(self, environments: Sequence[Mapping[str, str]]) -> None:
        """environments: of ranks 1 and up, beyond this process's own."""
        self.folder = Path(tempfile.mkdtemp(prefix="specserve-ranks-"))
        """Where all ranks find each other: nobody else may read it."""
        self.fate, self.all = Fate(), [start(i + 1, each, self.folder) for i, each in enumerate(environments)]
        self.end = weakref.finalize(self, end_all, self.fate, self.all, self.folder)
        for rank in self.all:
            threading.Thread(target=watch, args=(rank, self.all, self.fate), daemon=True).start()

    def check(self) -> None:
        """Raises RankLostError once a rank has ended."""
        if self.fate.lost is not None:
            raise self.fate.lost

    def send(self, message: Message) -> None:
        """To all. Raises RankLostError where one has ended."""
        data = encode(message)
        for rank in self.all:
            self.send_to(rank, data)

    def send_to(self, rank: Rank, data: bytes) -> None:
        self.check()
        try:
            with rank.sending:
                rank.connection.send_bytes(data)
        except OSError as error:
            raise self.lost_by(error, f"rank {rank.number} does not answer") from None

    def lost_by(self, error: Exception, what: str) -> RankLostError:
        """A connection has ended: a process is about to, and what it leaves tells more."""
        self.fate.told.wait(DEATH_SECONDS)
        return self.fate.lose(f"tensor_parallel: {what}: {error!r}.")

    def out_of_step(self, error: BaseException) -> RankLostError:
        """A pass raised in this process, and the others are within it. Where one of them had ended, that is why."""
        if isinstance(error, RuntimeError):  # torch's, of collectives too
            self.fate.told.wait(DEATH_SECONDS)
        return self.fate.lose(
            f"tensor_parallel: rank 0's forward pass raised {type(error).__name__}: {error}. The other ranks are "
            "within the pass and cannot go on. Start the server again."
        )

    def close(self) -> None:
        """End all, and wait for them."""
        self.end()


def start(number: int, environment: Mapping[str, str], folder: Path) -> Rank:
    """A process that waits for its first order, without the working directory among its modules' places. folder: what
    it removes where this process cannot."""
    ours, theirs = Pipe()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", WORKER, str(theirs.fileno()), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(theirs.fileno(),),
        start_new_session=True,
        env={**os.environ, **environment},
    )
    theirs.close()
    return Rank(number, process, ours, threading.Lock(), deque(maxlen=LAST_LINES))


def watch(rank: Rank, every: Sequence[Rank], fate: Fate) -> None:
    """A thread's: reads what the rank writes, to its end. An end that nobody asked for is everyone's."""
    assert rank.process.stderr is not None
    with rank.process.stderr as lines:
        for line in lines:
            rank.last_lines.append(line.decode(errors="replace").rstrip())
    code = rank.process.wait()
    if not fate.closing:
        fate.lose(told(rank, code))
        kill(every)


def told(rank: Rank, code: int) -> str:
    how = f"was ended by signal {-code} ({signal_name(-code)})" if code < 0 else f"ended with exit code {code}"
    lines = "\n".join(rank.last_lines)
    wrote = f" Its last lines:\n{lines}" if lines else ""
    return (
        f"tensor_parallel: rank {rank.number} (process {rank.process.pid}) {how}; without it nothing can be "
        f"computed.{wrote}"
    )


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def kill(ranks: Sequence[Rank]) -> None:
    for rank in ranks:
        with suppress(OSError):
            rank.process.kill()


def end_all(fate: Fate, ranks: Sequence[Rank], folder: Path) -> None:
    """They have nothing to put in order: they are killed, and waited for."""
    fate.closing = True
    kill(ranks)
    for rank in ranks:
        rank.process.wait()
        rank.connection.close()
        if rank.process.stdin is not None:
            rank.process.stdin.close()
    shutil.rmtree(folder, ignore_errors=True)
