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
    assert request.id not in runtime.ended


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
