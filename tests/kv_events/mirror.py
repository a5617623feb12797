"""A cache observer that keeps what it is told, and applies it as a subscriber does."""

from __future__ import annotations

from tests_plugin import in_process

from specserve.protocols import BlocksRemoved, BlocksStored, CacheCleared, CacheObserver
from specserve_workbench.testing.engines import make_engine


class Mirror(CacheObserver):
    def __init__(self):
        self.changes = []
        self.known = {}
        """By hash: (parent, tokens, adapter, cache salt)."""
        self.num_stops = 0

    def changed(self, changes):
        self.changes += changes
        for change in changes:
            if isinstance(change, BlocksStored):
                self.store(change)
            elif isinstance(change, BlocksRemoved):
                for h in change.hashes:
                    del self.known[h]  # KeyError: it was not known
            else:
                assert isinstance(change, CacheCleared)
                self.known.clear()

    def store(self, change):
        size, rest = divmod(len(change.token_ids), len(change.hashes))
        assert not rest
        parent = change.parent
        for i, h in enumerate(change.hashes):
            assert h not in self.known, "it was known already"
            tokens = change.token_ids[i * size : (i + 1) * size]
            self.known[h] = parent, tokens, change.adapter, change.cache_salt
            parent = h

    def stop(self):
        self.num_stops += 1


def mirrored_engine(model, **options):
    """An engine, and the mirror of its prefix cache."""
    mirror = Mirror()
    return make_engine(model, extra=in_process("mirror", mirror), **options).engine, mirror


def assert_mirrored(engine, mirror):
    assert mirror.known.keys() == engine.scheduler.pool.by_hash.keys()
