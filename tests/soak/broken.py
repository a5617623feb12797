"""`python -m soak.broken serve ...`: specserve with faults, each of which the soak test has to find.

A block that is not given back needs no test here: the engine checks that itself whenever it is idle, and ends.
"""

from __future__ import annotations

import itertools
import sys

from specserve.engine.verifier import DraftWalk
from specserve_server.cli import main
from specserve_server.wire.sse import EventStream

kept = []


def a_wrong_token():
    """Every 200th token is another one."""
    right, count = DraftWalk.advance, itertools.count(1)
    DraftWalk.advance = lambda self, token: right(self, token ^ 1 if next(count) % 200 == 0 else token)


def an_open_file():
    """Some streams leave a file open."""
    right, count = EventStream.finish, itertools.count(1)

    async def finish(self):
        if next(count) % 10 == 0:
            kept.append(open("/dev/null"))  # noqa: SIM115
        await right(self)

    EventStream.finish = finish


def a_lost_event():
    """Some streams end without [DONE]."""
    right, count = EventStream.finish, itertools.count(1)

    async def finish(self):
        if next(count) % 20:
            await right(self)

    EventStream.finish = finish


if __name__ == "__main__":
    for fault in (a_wrong_token, an_open_file, a_lost_event):
        fault()
    sys.exit(main())
