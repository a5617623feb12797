"""What the runtime knows of a request and of blocks."""

from __future__ import annotations

import torch
from runtime_cases import NUM_BLOCKS, W, a_request, hashes

from specserve_draft_models.draft_blocks import DraftBlocks
from specserve_draft_models.draft_spans import span_of
from specserve_draft_models.sequences import FedSequence

# --- FedSequence ----------------------------------------------------------------------------------------


def test_a_span_of_the_draft_layers_has_blocks_of_its_own_and_no_prompt():
    request = a_request()
    sequence = FedSequence.of(request)
    sequence.table = [*request.blocks, 90]
    span = span_of(sequence, 2, 1, scored=1)
    assert (span.request_id, span.start, span.length, span.scored, span.blocks) == (request.id, 2, 1, 1, sequence.table)
    assert span.prompt_len == 0  # every position is generated: one backend serves all


def test_a_sequence_goes_on_where_the_step_before_ended():
    sequence = FedSequence.of(a_request())
    assert sequence.was_restarted(0)  # the first step
    sequence.num_computed = 8
    assert not sequence.was_restarted(8)
    assert sequence.was_restarted(4)


def test_a_preempted_sequence_is_a_new_one_even_where_it_goes_on_at_the_same_position():
    sequence = FedSequence.of(a_request())
    sequence.num_computed = 8
    sequence.request.preempted_at.append(0.0)
    assert sequence.was_restarted(8)
    sequence.restart(8, [5, 3])
    assert not sequence.was_restarted(8)
    assert (sequence.num_fed, sequence.num_finalized, sequence.long) == (8, 2, [])


def test_a_sequence_that_was_given_up_is_complete_again_when_it_is_restarted():
    sequence = FedSequence.of(a_request())
    sequence.give_up()
    assert not sequence.is_complete
    sequence.restart(0, [])
    assert sequence.is_complete


# --- DraftBlocks -----------------------------------------------------------------------------------------


def test_blocks_are_known_for_the_tokens_that_they_were_finalized_with():
    blocks, request = DraftBlocks(None), a_request()
    request.hashes = hashes("a", "b")
    blocks.finalize(request, request.blocks, 0)
    assert blocks.has(request.blocks[:0], request.hashes)
    assert blocks.has(request.blocks[:1], request.hashes)
    assert not blocks.has(request.blocks[:2], request.hashes)
    blocks.finalize(request, request.blocks, 1)
    assert blocks.has(request.blocks[:2], request.hashes)
    request.hashes = hashes("a", "c")  # the same block, with other tokens by now
    assert not blocks.has(request.blocks[:2], request.hashes)


def test_a_block_without_a_hash_is_not_noted():
    blocks, request = DraftBlocks(None), a_request()
    blocks.finalize(request, request.blocks, 0)  # no prefix cache
    assert blocks.hash_of == {}
    assert not blocks.has(request.blocks[:1], request.hashes)


def test_a_note_is_void_when_other_tokens_come_into_its_block():
    blocks, request = DraftBlocks(None), a_request()
    request.hashes = hashes("a")
    blocks.finalize(request, request.blocks, 0)
    blocks.reopen([1, 2])
    assert blocks.has(request.blocks[:1], request.hashes)
    blocks.reopen(request.blocks)
    assert not blocks.has(request.blocks[:1], request.hashes)


def test_each_block_keeps_a_state_of_its_own():
    blocks = DraftBlocks(torch.zeros(NUM_BLOCKS, W))
    blocks.save_states([5, 2], torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    assert blocks.state(5).tolist() == [1.0, 2.0, 3.0]
    assert blocks.state(2).tolist() == [4.0, 5.0, 6.0]
