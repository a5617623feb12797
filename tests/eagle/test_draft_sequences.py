"""What the runtime knows of a request and of blocks, and where draft tokens lie. No model computes anything here."""

from __future__ import annotations

from itertools import combinations

import msgspec
import pytest
import torch

from specserve.batch.batch import Batch
from specserve.batch.builder import BatchBuilder
from specserve.batch.request import Request
from specserve.batch.span import Span
from specserve.draft_models.block_notes import BlockNotes
from specserve.draft_models.runtime import MAX_WAITING, DraftMemory, DraftModelRuntime, scratch_blocks
from specserve.draft_models.sequences import FedSequence
from specserve.kernels.torch_kernels import TorchKernels
from specserve.protocols import DraftLayers, DraftRows
from specserve.testing.requests import toy_request
from specserve.types import ForwardOutput, SpanVerdict, Verdict

SIZE, NUM_BLOCKS, W = 4, 32, 3
LAYERS = DraftLayers(
    num_heads=2, num_kv_heads=1, head_dim=4, scale=0.5, sliding_windows=(None,), reads_hidden=True, has_trees=False,
    max_draft_rows=6, max_len=64,
)  # fmt: skip


def a_request(name="r", num_tokens=10, blocks=(7, 3, 9)):
    wire = toy_request(name, range(num_tokens), max_tokens=20)
    request = Request.admit(wire, seed=0, arrival=0.0, order=0, max_len=num_tokens + 20)
    request.blocks = list(blocks)
    return request


def hashes(*names):
    return [name.encode() for name in names]


# --- FedSequence ----------------------------------------------------------------------------------------


def test_the_view_of_a_request_shares_its_tokens_and_not_its_blocks():
    request = a_request()
    view = FedSequence.of(request).view
    request.tokens.append(99)
    assert view.tokens is request.tokens
    assert view.blocks is not request.blocks
    assert view.prompt_len == 0  # every position is generated: one backend serves all


def test_a_sequence_goes_on_where_the_step_before_ended():
    sequence = FedSequence.of(a_request())
    assert sequence.was_restarted(0)  # the first step
    sequence.num_computed = 8
    assert not sequence.was_restarted(8)
    assert sequence.was_restarted(4)


def test_a_preempted_sequence_is_a_new_one_even_where_it_goes_on_at_the_same_position():
    sequence = FedSequence.of(a_request())
    sequence.num_computed = 8
    sequence.request.num_preemptions += 1
    assert sequence.was_restarted(8)
    sequence.restart(8, [5, 3])
    assert not sequence.was_restarted(8)
    assert (sequence.num_fed, sequence.num_sealed, sequence.waiting) == (8, 2, [])


def test_a_sequence_that_was_given_up_is_complete_again_when_it_is_restarted():
    sequence = FedSequence.of(a_request())
    sequence.give_up()
    assert not sequence.is_complete
    sequence.restart(0, [])
    assert sequence.is_complete


# --- BlockNotes -----------------------------------------------------------------------------------------


def test_blocks_are_known_for_the_tokens_that_they_were_sealed_with():
    notes, request = BlockNotes(None), a_request()
    request.hashes = hashes("a", "b")
    notes.seal(request, request.blocks, 0)
    assert notes.has_first(request, 0)
    assert notes.has_first(request, 1)
    assert not notes.has_first(request, 2)
    notes.seal(request, request.blocks, 1)
    assert notes.has_first(request, 2)
    request.hashes = hashes("a", "c")  # the same block, with other tokens by now
    assert not notes.has_first(request, 2)


def test_a_block_without_a_hash_is_not_noted():
    notes, request = BlockNotes(None), a_request()
    notes.seal(request, request.blocks, 0)  # no prefix cache
    assert notes.hash_of == {}
    assert not notes.has_first(request, 1)


def test_a_note_is_void_when_other_tokens_come_into_its_block():
    notes, request = BlockNotes(None), a_request()
    request.hashes = hashes("a")
    notes.seal(request, request.blocks, 0)
    notes.reopen([1, 2])
    assert notes.has_first(request, 1)
    notes.reopen(request.blocks)
    assert not notes.has_first(request, 1)


def test_a_state_is_handed_out_as_a_copy():
    notes = BlockNotes(torch.zeros(NUM_BLOCKS, W))
    notes.save_state(5, torch.tensor([1.0, 2.0, 3.0]))
    state = notes.state(5)
    notes.save_state(5, torch.zeros(W))
    assert state.tolist() == [[1.0, 2.0, 3.0]]


# --- the runtime ----------------------------------------------------------------------------------------


def a_runtime(layers=LAYERS, size=SIZE):
    notes = BlockNotes(torch.zeros(NUM_BLOCKS, W) if layers.reads_hidden else None)
    memory = DraftMemory(None, notes, size, NUM_BLOCKS, torch.device("cpu"))  # type: ignore[arg-type]
    return DraftModelRuntime(layers, (1,), TorchKernels(), memory)


def step(runtime, *requests, limits=None, starts=None):
    """A step that computes all committed tokens of the requests, and gives each one token more."""
    starts = starts or [0] * len(requests)
    spans = [Span(r, start, len(r.tokens) - start, 0, 1) for r, start in zip(requests, starts, strict=True)]
    batch = BatchBuilder(runtime.block_size, torch.device("cpu")).build(spans)
    positions = torch.cat([torch.arange(span.start, span.start + span.length) for span in spans])
    output = ForwardOutput(torch.zeros(len(spans), 8), {1: positions[:, None].expand(-1, W).float()})
    for request in requests:
        request.computed = len(request.tokens)
        request.tokens.append(1)
    verdict = Verdict([SpanVerdict((), (1,), None, None, None) for _ in spans])
    return runtime.collect(batch, output, verdict, [4] * len(spans) if limits is None else limits)


def fed_positions(feed):
    return [list(range(span.start, span.start + span.length)) for span in feed.batch.spans]


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
    layers = msgspec.structs.replace(LAYERS, max_len=2 * MAX_WAITING)
    runtime, request = a_runtime(layers), a_request(num_tokens=MAX_WAITING - 2, blocks=range(20))
    runtime.start(request)
    for start in (0, MAX_WAITING - 2, MAX_WAITING - 1):
        assert step(runtime, request, starts=[start], limits=[0]) is None
    feed = step(runtime, request, starts=[MAX_WAITING], limits=[0])
    assert fed_positions(feed) == [list(range(1, MAX_WAITING))]  # its complete blocks
    assert feed.drafting == []
    runtime.done(feed)
    assert runtime.sequences["r"].num_sealed == MAX_WAITING // SIZE


class Recorder:
    """Passes that remember which positions they read."""

    def __init__(self):
        self.read = []

    def step(self, batch, hidden, rows, count, *, from_target):
        self.read += batch.positions.tolist()


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


def test_an_aborted_request_is_fed_at_once():
    runtime, request = a_runtime(), a_request()
    runtime.passes = recorder = Recorder()
    request.hashes = hashes("x", "y")
    runtime.start(request)
    assert step(runtime, request, limits=[0]) is None
    request.finish_reason = "abort"
    runtime.stop(request)
    assert recorder.read == list(range(1, 8))


def test_a_request_that_is_aborted_after_it_gave_its_blocks_back_is_not_fed():
    runtime, request = a_runtime(), a_request()
    runtime.passes = recorder = Recorder()
    request.hashes = hashes("x", "y")
    runtime.start(request)
    assert step(runtime, request, limits=[0]) is None
    request.blocks, request.finish_reason = [], "abort"  # preempted before
    runtime.stop(request)
    assert recorder.read == []


def test_a_block_keeps_the_hidden_state_of_its_last_position():
    runtime, request = a_runtime(), a_request()
    runtime.start(request)
    runtime.done(step(runtime, request))
    assert runtime.notes.states[[7, 3, 9], 0].tolist() == [3, 7, 0]


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
    assert runtime.notes.hash_of == {7: b"a", 3: b"b"}


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
