"""The sockets of these tests' subscribers."""

from __future__ import annotations

import pytest
import zmq


class KeptSockets:
    """Makes sockets and closes all of them in the end: one that is forgotten open warns."""

    def __init__(self):
        self.context, self.sockets = zmq.Context(), []

    def socket(self, kind):
        self.sockets.append(self.context.socket(kind))
        return self.sockets[-1]

    def close(self):
        for socket in self.sockets:
            socket.close(linger=0)
        self.context.term()


@pytest.fixture
def context():
    kept = KeptSockets()
    yield kept
    kept.close()
