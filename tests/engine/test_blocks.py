"""The block pool: conservation under any sequence of uses, who is evicted first, what never matches."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from specserve.kv.blocks import BlockPool, chain_hash, mixed_hash, root_hash

TOKEN = st.integers(0, 1)  # few tokens and short chains: content repeats often


def chain(tokens, namespace="", arithmetic="a", size=1):
    hashes = [root_hash(namespace, arithmetic)]
    for begin in range(0, len(tokens), size):
        hashes.append(chain_hash(hashes[-1], tokens[begin : begin + size]))
    return hashes[1:]


class PoolMachine(RuleBasedStateMachine):
    """Requests of one-token blocks come, match, grow, publish and go, against a model of what each block holds."""

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(7)
        self.requests: list[tuple[list[int], list[bytes], int]] = []
        self.content: dict[int, bytes] = {}

    @rule(tokens=st.lists(TOKEN, min_size=1, max_size=5), publish=st.integers(0, 5))
    def come(self, tokens, publish):
        hashes = chain(tokens)
        matched = self.pool.match(hashes)
        assert [self.content[b] for b in matched] == hashes[: len(matched)], "a match holds exactly what was asked"
        idle = sum(self.pool.holders[b] == 0 for b in matched)
        missing = len(tokens) - len(matched)
        if not self.pool.can_allocate(missing + idle):
            return
        self.pool.hold(matched)
        fresh = self.pool.allocate(missing)
        assert not set(fresh) & set(matched)
        blocks = matched + fresh
        for block, h in zip(blocks, hashes, strict=True):
            self.content[block] = h
        self.requests.append((blocks, hashes, len(matched)))
        self.publish(len(self.requests) - 1, publish)

    def publish(self, at, count):
        blocks, hashes, published = self.requests[at]
        for block, h in list(zip(blocks, hashes, strict=True))[published : published + count]:
            self.pool.publish(block, h)
            assert self.pool.by_hash[h] == block or self.content[self.pool.by_hash[h]] == h
        self.requests[at] = (blocks, hashes, min(len(blocks), published + count))

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), count=st.integers(1, 5))
    def publish_more(self, data, count):
        self.publish(data.draw(st.integers(0, len(self.requests) - 1)), count)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def go(self, data):
        blocks, _, _ = self.requests.pop(data.draw(st.integers(0, len(self.requests) - 1)))
        self.pool.release(blocks)

    @rule()
    def evict_all(self):
        free = self.pool.num_available
        blocks = self.pool.allocate(free)
        assert not self.pool.can_allocate(1)
        assert not self.pool.idle
        self.pool.release(blocks)

    @rule()
    def drop_idle(self):
        available = self.pool.num_available
        self.pool.drop_idle()
        assert not self.pool.idle
        assert len(self.pool.free) == available
        held = {block for blocks, _, _ in self.requests for block in blocks}
        assert set(self.pool.hash_of) <= held, "what is known is held"

    @invariant()
    def blocks_are_conserved(self):
        self.pool.check_integrity([blocks for blocks, _, _ in self.requests])
        held = {block for blocks, _, _ in self.requests for block in blocks}
        assert self.pool.num_available == 7 - len(held)
        assert self.pool.usage == pytest.approx(len(held) / 7)

    @invariant()
    def known_blocks_hold_what_their_hash_says(self):
        assert all(self.content[block] == h for h, block in self.pool.by_hash.items())


TestAnySequenceOfUses = PoolMachine.TestCase
TestAnySequenceOfUses.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def filled(pool, tokens, **keys):
    """Blocks that were computed for `tokens`, published, and given back."""
    hashes = chain(tokens, **keys)
    blocks = pool.allocate(len(hashes))
    for block, h in zip(blocks, hashes, strict=True):
        pool.publish(block, h)
    pool.release(blocks)
    return hashes


def test_free_blocks_are_taken_before_known_ones_are_evicted():
    pool = BlockPool(4)
    known = filled(pool, [1, 2])
    pool.allocate(2)
    assert len(pool.match(known)) == 2


def test_the_least_recently_used_is_evicted_first():
    pool = BlockPool(3)
    a, b, c = (filled(pool, [t]) for t in (1, 2, 3))
    again = pool.match(a)
    pool.hold(again)
    pool.release(again)  # a is now the most recent
    pool.allocate(1)
    assert [len(pool.match(h)) for h in (a, b, c)] == [1, 0, 1]
    pool.allocate(1)
    assert [len(pool.match(h)) for h in (a, b, c)] == [1, 0, 0]


def test_the_end_of_a_chain_goes_before_its_front():
    pool = BlockPool(4)
    hashes = filled(pool, [1, 2, 3, 4])
    for left in (3, 2, 1, 0):
        taken = pool.allocate(1)
        assert len(pool.match(hashes)) == left
        pool.check_integrity([taken, *([b] for b in range(4) if pool.holders[b] and b not in taken)])


def test_a_held_block_is_never_evicted():
    pool = BlockPool(3)
    hashes = filled(pool, [1, 2])
    pool.hold(pool.match(hashes))
    assert pool.can_allocate(1)
    assert not pool.can_allocate(2)
    pool.allocate(1)
    assert len(pool.match(hashes)) == 2


def test_a_second_block_of_the_same_content_stays_anonymous():
    pool = BlockPool(4)
    first, second = pool.allocate(1), pool.allocate(1)
    (h,) = chain([7])
    pool.publish(first[0], h)
    pool.publish(second[0], h)
    assert pool.match([h]) == first
    pool.release(second)
    assert (len(pool.free), len(pool.idle)) == (3, 0)
    pool.release(first)
    assert (len(pool.free), len(pool.idle)) == (3, 1)
    pool.check_integrity([])


def test_a_shared_block_is_idle_only_when_the_last_holder_let_go():
    pool = BlockPool(2)
    hashes = filled(pool, [1])
    blocks = pool.match(hashes)
    pool.hold(blocks)
    pool.hold(blocks)
    pool.release(blocks)
    assert not pool.idle
    pool.release(blocks)
    assert list(pool.idle) == blocks


def test_a_match_ends_at_the_first_unknown_block():
    pool = BlockPool(4)
    hashes = filled(pool, [1, 2, 3])
    pool.allocate(2)  # takes the free block and the end of the chain
    assert len(pool.match(hashes)) == 2
    assert pool.match([chain([9])[0], *hashes]) == []


@pytest.mark.parametrize("keys", [{"namespace": "adapter@1"}, {"arithmetic": "b"}, {"arithmetic": "a\0"}], ids=str)
def test_namespaces_and_arithmetics_never_match(keys):
    pool = BlockPool(4)
    hashes = filled(pool, [1, 2])
    assert len(pool.match(hashes)) == 2
    assert pool.match(chain([1, 2], **keys)) == []


def test_a_change_of_arithmetic_within_a_chain_is_part_of_its_hashes():
    parent = root_hash("", "a")
    turns = [mixed_hash(parent, 0, "b"), mixed_hash(parent, 3, "b"), mixed_hash(parent, 3, "c"), parent]
    assert len({chain_hash(turn, [1, 2, 3, 4]) for turn in turns}) == 4
    assert chain_hash(mixed_hash(parent, 3, "b"), [1]) == chain_hash(mixed_hash(parent, 3, "b"), [1])


def test_the_same_tokens_after_other_tokens_are_another_content():
    assert chain([1, 5], size=1)[1] != chain([2, 5], size=1)[1]
    assert chain([1, 2, 3, 4], size=2)[-1] != chain([1, 2, 3, 4], size=4)[-1]
    assert chain([1, -1], size=2) != chain([1, 2**32 - 1], size=2)


@pytest.mark.parametrize(
    ("held", "complaint"), [([[0, 1]], "holders differ"), ([], "holders differ"), ([[0], [0]], "holders")]
)
def test_check_integrity_finds_a_block_whose_holders_are_miscounted(held, complaint):
    pool = BlockPool(3)
    pool.allocate(1)
    pool.check_integrity([[0]])
    with pytest.raises(AssertionError, match=complaint):
        pool.check_integrity(held)
    pool.free.append(2)
    with pytest.raises(AssertionError, match="lost or doubled"):
        pool.check_integrity([[0]])
