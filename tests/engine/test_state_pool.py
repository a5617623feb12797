"""Slots of recurrent states: none is lost, none is in two places, whatever the order of calls."""

from __future__ import annotations

import random

import pytest

from specserve.kv.states import EMPTY, StatePool


def test_the_state_used_longest_ago_makes_room():
    pool = StatePool(1, 2)
    for name in (b"a", b"b"):
        assert pool.save(name, pool.take_saved())
    assert pool.find(b"a") is not None
    slot = pool.take_saved()
    assert pool.find(b"b") is None
    assert pool.save(b"c", slot)
    assert {*pool.by_hash} == {b"a", b"c"}


def test_a_state_that_a_request_starts_from_stays_where_it_is():
    pool = StatePool(1, 1)
    slot = pool.take_saved()
    assert pool.save(b"a", slot)
    pool.pin(slot)
    assert pool.take_saved() is None
    pool.forget(b"a")
    assert pool.take_saved() is None
    pool.unpin(slot)
    assert pool.take_saved() == slot


def test_a_state_that_is_saved_already_is_not_saved_twice():
    pool = StatePool(1, 2)
    first = pool.take_saved()
    assert pool.save(b"a", first)
    assert not pool.save(b"a", pool.take_saved())
    assert pool.by_hash == {b"a": first}
    pool.check_integrity(0, [])


@pytest.mark.parametrize("seed", range(20))
def test_no_slot_is_lost_or_in_two_places(seed):
    rng = random.Random(seed)
    pool = StatePool(3, rng.choice((0, 1, 4)))
    held, saving, pinned = [], [], []
    for _ in range(300):
        name = bytes([rng.randrange(6)])
        match rng.randrange(7):
            case 0 if len(held) < 3:
                held.append(pool.take_pair())
            case 1 if held:
                pool.release_pair(held.pop(rng.randrange(len(held))))
            case 2 if (slot := pool.take_saved()) is not None:
                saving.append(slot)
            case 3 if saving:
                pool.save(name, saving.pop())
            case 4:
                pool.forget(name)
            case 5 if (slot := pool.find(name)) is not None:
                pool.pin(slot)
                pinned.append(slot)
            case 6 if pinned:
                pool.unpin(pinned.pop(rng.randrange(len(pinned))))
        own = [slot for pair in held for slot in pair]
        assert len({EMPTY, *own, *saving, *pinned}) == 1 + len(own) + len(saving) + len({*pinned})
        pool.check_integrity(len(held), saving)
