"""What waits of a request is fed where the prefix cache still has its blocks, however the request ended."""

from __future__ import annotations

import pytest
from runtime_cases import Recorder, a_request, a_runtime, fed_positions, hashes, preempted, step


def runtime_with(*requests, cached=()):
    """The requests share their first two blocks; these are the blocks that the prefix cache has for them."""
    runtime = a_runtime(cached_blocks=lambda h: list(cached)[: len(h)])
    runtime.passes = recorder = Recorder()
    for request in requests:
        request.hashes = hashes("x", "y")
        runtime.start(request)
    return runtime, recorder


def end(runtime, request, reason):
    request.finish_reason = reason
    runtime.stop(request)


@pytest.mark.parametrize(
    ("cached", "read"), [((7, 3), range(1, 8)), ((7,), range(1, 4)), ((7, 5), range(1, 8)), ((), ())]
)
def test_a_request_that_is_aborted_after_it_gave_its_blocks_back_is_fed_where_the_cache_has_them(cached, read):
    request = a_request()
    runtime, recorder = runtime_with(request, cached=cached)
    assert step(runtime, request, limits=[0]) is None
    end(runtime, preempted(request, ()), "abort")
    assert recorder.read == list(read)
    assert runtime.draft_blocks.has(cached, request.hashes)


@pytest.mark.parametrize(("cached", "read"), [((7, 3), range(1, 8)), ((7,), range(1, 4)), ((), ())])
def test_a_request_that_raised_alone_is_fed_in_the_next_step_where_the_cache_has_its_blocks(cached, read):
    request, other = a_request(), a_request("o", blocks=(11, 12, 13))
    runtime, recorder = runtime_with(request, cached=cached)
    runtime.start(other)
    assert step(runtime, request, other, limits=[0, 0]) is None
    end(runtime, request, "error")
    assert recorder.read == []
    assert step(runtime, other, starts=[10], limits=[0]) is None
    assert recorder.read == list(read)
    step(runtime, other, starts=[11], limits=[0])
    assert not runtime.ended


def test_blocks_of_a_request_that_raised_alone_which_others_computed_too_are_the_caches():
    """Its own copy of the first block, 7, was not published and may hold other tokens by now; 5 holds the same ones."""
    other, request = a_request("o", blocks=(5, 6, 9)), a_request()
    runtime, recorder = runtime_with(other, request, cached=(5, 3))
    runtime.done(step(runtime, other))
    assert step(runtime, request, limits=[0]) is None
    end(runtime, request, "error")
    runtime.draft_blocks.reopen([7])
    step(runtime, other, starts=[10], limits=[0])
    assert runtime.draft_blocks.has((5, 3), request.hashes)
    assert not runtime.draft_blocks.has((7,), request.hashes)
    assert recorder.read == list(range(4, 8))


def test_a_request_behind_blocks_of_one_that_ends_in_the_same_step_is_drafted_for():
    first, second = a_request("a"), a_request("b", blocks=(7, 3, 20))
    runtime, recorder = runtime_with(first, second)
    assert step(runtime, first, limits=[0]) is None
    end(runtime, first, "length")
    feed = step(runtime, second, first, starts=[8, 10], limits=[4, 0])
    assert recorder.read == list(range(1, 8))
    assert fed_positions(feed) == [[8, 9, 10]]
    assert feed.drafting == [0]


@pytest.mark.parametrize(("cached", "read"), [((7, 3, 9), range(7, 12)), ((7, 5, 9), ())])
def test_blocks_are_fed_from_where_a_part_of_one_was_fed_unless_that_part_is_in_another_copy(cached, read):
    """Positions 4 to 6 lie in block 3, the request's own."""
    request = a_request(num_tokens=6)
    runtime, recorder = runtime_with(request, cached=cached)
    request.hashes = hashes("x", "y", "z")
    runtime.done(step(runtime, request))
    for start in range(6, 12):
        assert step(runtime, request, starts=[start], limits=[0]) is None
    runtime.end_run()
    assert runtime.sequences["r"].blocks == [7, 3, 9]
    end(runtime, preempted(request, ()), "abort")
    assert recorder.read == list(read)
    assert runtime.draft_blocks.has((7, 3, 9), request.hashes) == bool(read)


def test_blocks_of_other_tokens_than_the_owners_are_not_fed():
    first, second = a_request("a"), a_request("b", blocks=(5, 6, 20))
    runtime, recorder = runtime_with(first, second)
    second.hashes = hashes("x", "z")
    assert step(runtime, first, limits=[0]) is None
    assert step(runtime, second, starts=[8]) is None
    assert recorder.read == list(range(1, 4))


def test_blocks_whose_tokens_wait_for_other_copies_of_them_are_fed_and_the_owner_goes_on_as_before():
    """Whoever computed 5 and 6 lost what waited for them; the first request computed the same tokens in 7 and 3."""
    first, second = a_request("a"), a_request("b", blocks=(5, 6, 20))
    runtime, recorder = runtime_with(first, second)
    assert step(runtime, first, limits=[0]) is None
    feed = step(runtime, second, starts=[8])
    assert recorder.read == list(range(1, 8))
    assert fed_positions(feed) == [[8, 9, 10]]
    assert feed.hidden[:, 0].tolist() == [7, 8, 9]
    runtime.done(feed)
    feed = step(runtime, first, starts=[10])
    assert fed_positions(feed) == [list(range(1, 12))]
    assert feed.hidden[:, 0].tolist() == list(range(11))
    ring = runtime.pending.ring
    assert ring.num_places - len(ring.free) == sum(sequence.place >= 0 for sequence in runtime.sequences.values())


def test_a_part_of_a_block_is_not_built_on_where_others_were_fed_into_the_block_since():
    """The prefix cache has the block for the same tokens again: whoever computed them is not known here."""
    request, other = a_request(num_tokens=6), a_request("o", num_tokens=3, blocks=(3, 12))
    runtime, recorder = runtime_with(request, cached=(7, 3, 9))
    request.hashes, other.hashes = hashes("x", "y", "z"), hashes("o")
    runtime.start(other)
    runtime.done(step(runtime, request))
    for start in range(6, 12):
        assert step(runtime, request, starts=[start], limits=[0]) is None
    request = preempted(request, ())
    runtime.done(step(runtime, other))
    end(runtime, request, "abort")
    assert recorder.read == []
    assert not runtime.draft_blocks.has((7, 3), request.hashes)


def test_a_request_behind_another_copy_between_blocks_of_the_owner_is_drafted_for():
    first, second = (a_request(name, 14, blocks) for name, blocks in (("a", (7, 3, 9, 11)), ("b", (7, 5, 9, 20))))
    runtime, recorder = runtime_with(first, second)
    for request in (first, second):
        request.hashes = hashes("x", "y", "z")
    assert step(runtime, first, limits=[0]) is None
    feed = step(runtime, second, starts=[12])
    assert recorder.read == list(range(1, 12))
    assert fed_positions(feed) == [[12, 13, 14]]
    runtime.done(feed)
    assert fed_positions(step(runtime, first, starts=[14])) == [list(range(1, 16))]


def test_what_waits_of_a_request_is_forgotten_though_the_pass_that_feeds_it_raises():
    request, other = a_request(), a_request("o", blocks=(11, 12, 13))
    runtime, _ = runtime_with(request, cached=(7, 3))
    runtime.start(other)
    assert step(runtime, request, other, limits=[0, 0]) is None
    sequence = runtime.sequences[request.id]
    end(runtime, request, "error")
    runtime.passes = Raising()
    with pytest.raises(RuntimeError, match="a pass raised"):
        step(runtime, other, starts=[10], limits=[0])
    step(runtime, other, starts=[11], limits=[0])
    assert (sequence.place, sequence.long) == (-1, [])
    assert sequence not in runtime.pending.noted
    assert not runtime.ended


class Raising:
    def step(self, batch, hidden, rows, count, *, from_target):
        raise RuntimeError("a pass raised")


def test_two_requests_of_one_name_that_raise_before_a_step_are_both_fed():
    first, second = a_request(), a_request(blocks=(5, 6, 9))
    runtime, recorder = runtime_with(first, cached=(7, 3))
    assert step(runtime, first, limits=[0]) is None
    end(runtime, first, "error")
    second.hashes = []
    runtime.start(second)
    end(runtime, second, "error")
    other = a_request("o", blocks=(11, 12, 13))
    runtime.start(other)
    step(runtime, other, limits=[0])
    assert recorder.read == list(range(1, 8))
