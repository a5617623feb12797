"""Numbers batches of changes and publishes them, in a thread of its own. The step's thread only appends to a queue.

A batch has its number before it may be dropped, so whatever is lost, here or in ZeroMQ, a subscriber sees the gap.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import zmq

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.api import CacheChange
    from specserve_kv_events.sockets import Sockets
    from specserve_kv_events.wire import BatchWriter

logger = logging.getLogger(__name__)

END_OF_REPLAY = (-1).to_bytes(8, "big", signed=True)
STOP_SECONDS = 2.0


class Waiting(NamedTuple):
    sequence: int
    seconds: float
    """Of the epoch."""
    changes: Sequence[CacheChange]


class Publisher:
    """Publishes from the start on; `stop` ends it."""

    def __init__(self, sockets: Sockets, writer: BatchWriter, topic: str, buffer: int) -> None:
        self.sockets, self.writer, self.topic = sockets, writer, topic.encode()
        self.waiting: deque[Waiting] = deque(maxlen=buffer)
        self.sent: deque[tuple[bytes, bytes]] = deque(maxlen=buffer)
        """(sequence, payload), for replay."""
        self.next_sequence = 0
        self.num_events = 0
        self.num_dropped = 0
        """Batches that the thread did not get to before too many newer ones were there."""
        self.is_stopping = False
        self.wake_end, self.thread_end = socket.socketpair()
        self.wake_end.setblocking(False)
        self.thread_end.setblocking(False)
        self.thread = threading.Thread(target=self.run, name="specserve-kv-events", daemon=True)
        self.thread.start()

    # --- called in the step's thread ----------------------------------------------------------------

    def publish(self, changes: Sequence[CacheChange]) -> None:
        """Never blocks, whatever subscribers do."""
        if len(self.waiting) == self.waiting.maxlen:
            self.num_dropped += 1
        self.waiting.append(Waiting(self.next_sequence, time.time(), changes))
        self.next_sequence += 1
        self.num_events += len(changes)
        self.wake()

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):  # it is awake, or has ended
            self.wake_end.send(b"\0")

    def stop(self) -> None:
        """Send what waits, then close the sockets. Any thread may call it, more than once."""
        self.is_stopping = True
        self.wake()
        self.thread.join(STOP_SECONDS)

    # --- the thread ---------------------------------------------------------------------------------

    def run(self) -> None:
        poller = zmq.Poller()
        poller.register(self.thread_end, zmq.POLLIN)
        if self.sockets.replay is not None:
            poller.register(self.sockets.replay, zmq.POLLIN)
        try:
            while not self.is_stopping:
                poller.poll()
                self.send_waiting()
                self.serve_replays()
            self.send_waiting()
        except Exception:
            logger.exception("KV events are not published any more")
        finally:
            self.sockets.close()
            self.wake_end.close()
            self.thread_end.close()

    def send_waiting(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.thread_end.recv(4096)
        while self.waiting:
            batch = self.waiting.popleft()
            message = batch.sequence.to_bytes(8, "big"), self.writer.write(batch.seconds, batch.changes)
            self.sockets.events.send_multipart((self.topic, *message))
            self.sent.append(message)

    def serve_replays(self) -> None:
        """A subscriber asks with the number of the first batch that it lacks, 8 bytes, and gets all that are kept from
        there on, then the number -1."""
        replay = self.sockets.replay
        while replay is not None and replay.poll(0):
            client, *frames = replay.recv_multipart()
            if not frames or len(frames[-1]) != 8:
                logger.warning("a request for a replay of KV events is not a number of 8 bytes; it is not answered")
                continue
            for message in [m for m in self.sent if m[0] >= frames[-1]]:
                replay.send_multipart((client, b"", *message))
            replay.send_multipart((client, b"", END_OF_REPLAY, b""))
