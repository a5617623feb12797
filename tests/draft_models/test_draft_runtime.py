"""What the runtime feeds the draft layers, when, and where draft tokens lie. No model computes anything here."""

from __future__ import annotations

from itertools import combinations

import msgspec
import pytest
from runtime_cases import (
    LAYERS,
    NUM_BLOCKS,
    SIZE,
    WAITING,
    Recorder,
    a_request,
    a_runtime,
    fed_positions,
    hashes,
    preempted,
    scratch_blocks,
    step,
)

from specserve.batch.batch import Batch
from specserve.protocols import DraftLayers
from specserve_draft_models import DraftRows


def test_a_feed_pairs_each_position_with_the_hidden_state_before_it():
    runtime, request = a_runtime(), a_request()
    runtime.start(request)
    feed = step(runtime, request)
    assert isinstance(feed.batch, Batch)
    assert fed_positions(feed) == [list(range(1, 11))]
    assert feed.hidden[:, 0].tolist() == list(range(10))
    assert feed.batch.positions.tolist() == list(range(1, 11))
    assert feed.drafting == [0]


def test_only_what_is_missing_is_fed():
    runtime, request = a_runtime(), a_request()
    runtime.start(request)
    runtime.done(step(runtime, request))
    feed = step(runtime, request, starts=[10])
    assert fed_positions(feed) == [[11]]
    assert feed.hidden[:, 0].tolist() == [10]


def test_a_feed_whose_pass_raised_is_fed_again():
    runtime, request = a_runtime(), a_request()
    runtime.start(request)
    step(runtime, request)  # no `done`
    feed = step(runtime, request, starts=[10])
    assert fed_positions(feed) == [list(range(1, 12))]
    assert feed.hidden[:, 0].tolist() == list(range(11))


def test_requests_without_a_limit_are_fed_when_much_waits_and_not_before():
    layers = msgspec.structs.replace(LAYERS, max_len=2 * WAITING)
    runtime, request = a_runtime(layers), a_request(num_tokens=WAITING - 2, blocks=range(125))
    runtime.start(request)
    for start in (0, WAITING - 2, WAITING - 1):
        assert step(runtime, request, starts=[start], limits=[0]) is None
    feed = step(runtime, request, starts=[WAITING], limits=[0])
    assert fed_positions(feed) == [list(range(1, WAITING))]  # its complete blocks
    assert feed.drafting == []
    runtime.done(feed)
    assert runtime.sequences["r"].num_finalized == WAITING // SIZE


def test_what_waits_for_a_block_is_fed_before_another_request_goes_on_behind_it():
    runtime, first, second = a_runtime(), a_request("a"), a_request("b", blocks=(7, 3, 20))
    runtime.passes = recorder = Recorder()
    for request in (first, second):
        request.hashes = hashes("x", "y")
        runtime.start(request)
    assert step(runtime, first, limits=[0]) is None
    feed = step(runtime, second, starts=[8])
    assert recorder.read == list(range(1, 8))
    assert fed_positions(feed) == [[8, 9, 10]]
    assert feed.hidden[:, 0].tolist() == [7, 8, 9]


def test_a_preempted_request_completes_blocks_behind_copies_that_others_computed():
    """Its own copy of the first block, 7, was not published; 5 holds the same tokens."""
    runtime, other, request = a_runtime(), a_request("o", blocks=(5, 6, 9)), a_request()
    runtime.passes = recorder = Recorder()
    for each in (other, request):
        each.hashes = hashes("x", "y")
        runtime.start(each)
    runtime.done(step(runtime, other))
    assert step(runtime, request, limits=[0]) is None
    runtime.draft_blocks.reopen([6])  # other tokens since then
    feed = step(runtime, preempted(request, (5, 3, 20)), starts=[8])
    assert recorder.read == list(range(4, 8))
    assert fed_positions(feed) == [[8, 9, 10, 11]]
    assert feed.hidden[:, 0].tolist() == [7, 8, 9, 10]


def test_a_preempted_request_is_not_drafted_for_where_its_keys_were_lost_with_its_block():
    """Positions 1 to 6 lie in block 7, of which the prefix cache gave another copy, and are not there."""
    layers = msgspec.structs.replace(LAYERS, max_len=64)
    runtime, request = a_runtime(layers, size=8), a_request(num_tokens=7, blocks=(7, 3))
    request.hashes = hashes("x")
    runtime.start(request)
    runtime.done(step(runtime, request))
    assert step(runtime, request, starts=[7], limits=[0]) is None
    runtime.end_run()
    assert runtime.sequences["r"].blocks == [7]
    request.hashes = hashes("x")
    assert step(runtime, preempted(request, (5, 20)), starts=[8]) is None


def a_request_that_waits():
    """It ran a step without a draft, and nothing of it was fed. What reads its tokens is the third."""
    runtime, request = a_runtime(), a_request()
    runtime.passes = recorder = Recorder()
    request.hashes = hashes("x", "y")
    runtime.start(request)
    assert step(runtime, request, limits=[0]) is None
    return runtime, request, recorder


@pytest.mark.parametrize("is_found", [True, False])
def test_a_request_that_ended_is_fed_where_somebody_may_find_its_blocks(is_found):
    layers = msgspec.structs.replace(LAYERS, max_len=4096)
    runtime = a_runtime(layers)
    requests = [a_request(f"r{i}", 3 * WAITING // 4, list(range(NUM_BLOCKS))) for i in range(2)]
    for request in requests:
        runtime.start(request)
    assert step(runtime, *requests, limits=[0, 0]) is None
    runtime.stop(requests[0])
    requests[0].hashes = hashes("x", "y") if is_found else []
    feed = step(runtime, *requests, limits=[0, 0], starts=[3 * WAITING // 4] * 2)
    assert (feed is not None) == is_found


def test_an_aborted_request_is_fed_at_once():
    runtime, request, recorder = a_request_that_waits()
    request.finish_reason = "abort"
    runtime.stop(request)
    assert recorder.read == list(range(1, 8))


def test_an_aborted_request_is_not_fed_where_nobody_finds_its_blocks():
    runtime, request, recorder = a_request_that_waits()
    request.hashes, request.finish_reason = [], "abort"
    runtime.stop(request)
    assert recorder.read == []


def test_a_request_that_is_aborted_after_it_gave_its_blocks_back_is_not_fed():
    runtime, request, recorder = a_request_that_waits()
    request.blocks, request.finish_reason = [], "abort"  # preempted before
    runtime.stop(request)
    assert recorder.read == []


def test_a_block_keeps_the_hidden_state_of_its_last_position():
    runtime, request = a_runtime(), a_request()
    runtime.start(request)
    runtime.done(step(runtime, request))
    assert runtime.draft_blocks.states[[7, 3, 9], 0].tolist() == [3, 7, 0]


def test_a_request_behind_complete_blocks_begins_with_the_state_that_the_last_one_keeps():
    runtime, first, second = a_runtime(), a_request("a"), a_request("b", blocks=(7, 3, 20))
    for request in (first, second):
        request.hashes = hashes("x", "y")
        runtime.start(request)
    runtime.done(step(runtime, first))
    feed = step(runtime, second, starts=[8])
    assert fed_positions(feed) == [[8, 9, 10]]
    assert feed.hidden[:, 0].tolist() == [7, 8, 9]


@pytest.mark.parametrize("start", [8, 6])
def test_a_request_behind_blocks_that_are_not_complete_is_not_drafted_for(start):
    """At 6 a step was missed: no block begins there."""
    runtime, request = a_runtime(), a_request()
    request.hashes = hashes("x", "y")
    runtime.start(request)
    assert step(runtime, request, starts=[start]) is None
    assert step(runtime, request, starts=[10]) is None


def test_positions_beyond_the_draft_model_are_not_fed_and_blocks_before_them_are():
    layers = DraftLayers(**{name: getattr(LAYERS, name) for name in LAYERS.__struct_fields__} | {"max_len": 10})
    runtime, request = a_runtime(layers), a_request(num_tokens=13, blocks=(7, 3, 9, 2))
    request.hashes = hashes("a", "b", "c")
    runtime.start(request)
    runtime.stop(request)
    feed = step(runtime, request)
    assert fed_positions(feed) == [list(range(1, 8))]
    assert feed.drafting == []
    runtime.done(feed)
    assert runtime.draft_blocks.hash_of == {7: b"a", 3: b"b"}


def slots_of_drafts(runtime, requests, count):
    rows = [DraftRows(runtime.sequences[r.id], tuple(range(count))) for r in requests]
    batch = runtime.draft_batch(rows)
    return [
        batch.slots[offset : offset + length].tolist()
        for offset, length in zip(batch.row_offsets, batch.query_lens, strict=True)
    ]


@pytest.mark.parametrize("size", [1, 4, 16])
@pytest.mark.parametrize("num_tokens", [7, 8, 9, 15, 16])
def test_draft_tokens_of_requests_never_overlap_nor_lie_in_blocks_of_others(size, num_tokens):
    runtime = a_runtime(size=size)
    per_request = -(-num_tokens // size)
    requests = [
        a_request(f"{i}", num_tokens, range(i * per_request, (i + 1) * per_request))
        for i in range(min(4, NUM_BLOCKS // per_request))
    ]
    for request in requests:
        runtime.start(request)
    runtime.done(step(runtime, *requests))
    slots = slots_of_drafts(runtime, requests, LAYERS.max_draft_rows - 1)
    limit = (NUM_BLOCKS + len(requests) * scratch_blocks(LAYERS, size)) * size
    for request, own in zip(requests, slots, strict=True):
        assert len(set(own)) == len(own) == LAYERS.max_draft_rows - 1
        assert all(slot < limit for slot in own)
        assert all(slot // size in request.blocks or slot // size >= NUM_BLOCKS for slot in own)
        used = {request.blocks[p // size] * size + p % size for p in range(num_tokens)}
        assert not used & set(own)
    assert all(not set(a) & set(b) for a, b in combinations(slots, 2))


def test_what_lies_in_a_scratch_block_is_fed_again():
    runtime, request = a_runtime(), a_request(num_tokens=8, blocks=(7, 3))
    runtime.start(request)
    feed = step(runtime, request)
    assert fed_positions(feed) == [list(range(1, 9))]  # position 8 has no slot in the request's blocks
    runtime.done(feed)
    request.blocks.append(11)
    assert fed_positions(step(runtime, request, starts=[8])) == [[8, 9]]


def test_an_ended_request_is_fed_once_more_and_forgotten():
    runtime, request = a_runtime(), a_request(num_tokens=8, blocks=(7, 3))
    request.hashes = hashes("x", "y")
    runtime.start(request)
    runtime.stop(request)
    feed = step(runtime, request, limits=[0])
    assert fed_positions(feed) == [list(range(1, 8))]
    assert not runtime.sequences
    assert not runtime.ended
