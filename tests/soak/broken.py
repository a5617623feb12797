"""`python -m soak.broken FAULT serve ...`: specserve with a fault that the soak test has to find."""

from __future__ import annotations

import itertools
import sys

from specserve.cli import main
from specserve.engine.verifier import DraftWalk
from specserve.kv.blocks import BlockPool
from specserve.server.sse import EventStream

EVERY = 500
kept = []


def a_wrong_token():
    """The 500th token and every 500th after it is another one."""
    right, count = DraftWalk.advance, itertools.count(1)
    DraftWalk.advance = lambda self, token: right(self, token ^ 1 if next(count) % EVERY == 0 else token)


def a_lost_block():
    """One block is never given back."""
    right, count = BlockPool.release, itertools.count(1)
    BlockPool.release = lambda self, blocks: right(self, blocks[1:] if next(count) == EVERY else blocks)


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


FAULTS = {fault.__name__: fault for fault in (a_wrong_token, a_lost_block, an_open_file, a_lost_event)}

if __name__ == "__main__":
    FAULTS[sys.argv.pop(1)]()
    sys.exit(main())
