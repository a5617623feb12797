"""Hidden states that wait for a draft model: in a ring for each sequence, or as rows of a long step."""

from __future__ import annotations

import random

import pytest
import torch
from runtime_cases import a_request

from specserve.batch.hidden_states import HiddenStates
from specserve_draft_models.hidden_ring import HiddenRing
from specserve_draft_models.pending_hidden import PendingHidden, RingRows
from specserve_draft_models.sequences import FedSequence
from specserve_draft_models.step_hidden import StepHidden

W, LENGTH = 6, 8


def numbered(*positions):
    """[n, W] rows that hold these numbers."""
    return torch.tensor(positions, dtype=torch.float32)[:, None].expand(-1, W).contiguous()


def numbers(rows):
    return rows[:, 0].int().tolist()


def a_ring():
    return HiddenRing(torch.zeros(0, W), LENGTH)


def read(ring, place, positions):
    return numbers(ring.rows[list(ring.indices(place, positions))])


def test_layers_are_joined_in_the_order_in_which_the_drafter_names_them():
    layers = {3: torch.full((2, 3), 3.0), 1: torch.full((2, 3), 1.0)}
    assert StepHidden([layers], (3, 1)).joined().tolist() == [[3.0] * 3 + [1.0] * 3] * 2


def test_a_single_layer_is_not_copied():
    rows = torch.randn(4, W)
    assert StepHidden([{2: rows}], (2,)).joined() is rows


def states_of(source, begin, end, layers=(0, 1)):
    return HiddenStates(layers, source, begin, end)


def test_columns_of_one_tensor_are_not_copied():
    whole = torch.randn(4, 2 * W)
    found = StepHidden([states_of(whole, 1, 3)], (0, 1)).joined()
    assert found.data_ptr() == whole[1].data_ptr()
    assert torch.equal(found, whole[1:3])


def test_steps_that_lie_one_behind_the_other_are_not_copied():
    whole = torch.randn(6, 2 * W)
    steps = [states_of(whole, *part) for part in ((0, 1), (1, 4), (4, 6))]
    found = StepHidden(steps, (0, 1)).joined()
    assert found.data_ptr() == whole.data_ptr()
    assert torch.equal(found, whole)


PARTS = [(0, 1), (1, 4), (4, 6)]


@pytest.mark.parametrize("order", [(0, 2, 1), (2, 0, 1), (1, 1, 1), (0, 1, 3), (3, 0, 1), (0, 1, 4, 2)])
@pytest.mark.parametrize("layers", [(0, 1), (1, 0), (1,)])
def test_steps_that_lie_elsewhere_are_joined_in_their_order(order, layers):
    """Parts 0 to 2 are of one tensor, part 3 of another, part 4 of columns that lie apart."""
    whole, other = torch.randn(6, 2 * W), torch.randn(2, 2 * W)
    steps = [
        *(states_of(whole, *part) for part in PARTS),
        states_of(other, 0, 2),
        {i: torch.randn(2, W) for i in (0, 1)},
    ]
    found = StepHidden([steps[i] for i in order], layers).joined()
    assert torch.equal(found, torch.cat([torch.cat([steps[i][layer] for layer in layers], -1) for i in order]))


@pytest.mark.parametrize("first", range(LENGTH + 1))
@pytest.mark.parametrize("count", range(LENGTH + 1))
def test_positions_have_rows_of_their_own_place_in_order(first, count):
    ring = a_ring()
    places = [ring.open() for _ in range(3)]
    rows = ring.indices(places[1], range(first, first + count))
    assert len(set(rows)) == len(rows) == count
    assert [row // LENGTH for row in rows] == [places[1]] * count
    assert [row % LENGTH for row in rows] == [(first + i) % LENGTH for i in range(count)]


def test_places_are_used_again():
    ring = a_ring()
    places = [ring.open() for _ in range(5)]
    assert len(set(places)) == 5
    size = len(ring.rows)
    for place in places:
        ring.close(place)
    assert {ring.open() for _ in range(5)} <= set(range(size // LENGTH))
    assert len(ring.rows) == size


def test_what_a_place_holds_outlives_the_growth_of_the_ring():
    ring = a_ring()
    place = ring.open()
    ring.write(ring.indices(place, range(3, 5)), numbered(7, 8))
    for _ in range(4):
        ring.open()
    assert read(ring, place, range(3, 5)) == [7, 8]


def pending_hidden():
    return PendingHidden((0,), torch.zeros(0, W), LENGTH)


def a_sequence(name="r"):
    sequence = FedSequence.of(a_request(name))
    sequence.num_fed = 1
    return sequence


def test_rows_of_the_latest_step_are_read_where_they_are():
    pending, sequence = pending_hidden(), a_sequence()
    hidden = numbered(-1, 5, 6)
    pending.begin([{0: hidden}])
    pending.note(sequence, 0, range(1, 3))
    assert pending.gather(pending.pieces(sequence, 0, 2)).data_ptr() == hidden[1].data_ptr()
    assert sequence.place < 0


def test_what_was_read_is_not_written_to_the_ring():
    pending, sequence = pending_hidden(), a_sequence()
    pending.begin([{0: numbered(5, 6)}])
    pending.note(sequence, 0, range(2))
    sequence.num_fed = 3
    pending.begin([{0: numbered(7)}])
    assert sequence.place < 0


def test_what_was_not_read_is_in_the_ring_when_the_next_step_begins():
    pending, sequence = pending_hidden(), a_sequence()
    for position in range(LENGTH):
        pending.begin([{0: numbered(-1, position)}])
        pending.note(sequence, position, [1])
    pending.begin(())
    assert read(pending.ring, sequence.place, range(LENGTH)) == list(range(LENGTH))


def test_rows_of_a_step_behind_the_latest_ones_are_read_with_theirs():
    pending, sequence = pending_hidden(), a_sequence()
    pending.begin([{0: numbered(-1, 5)}, {0: numbered(-1, 6)}])
    pending.note(sequence, 0, [1, 3])
    pending.add({0: numbered(-1, 7, 8)})
    pending.note(sequence, 2, [1, 2])
    assert numbers(pending.gather(pending.pieces(sequence, 1, 4))) == [6, 7, 8]
    assert sequence.place < 0
    pending.begin(())
    assert read(pending.ring, sequence.place, range(4)) == [5, 6, 7, 8]


def test_a_long_step_behind_the_latest_ones_is_read_behind_them():
    pending, sequence = pending_hidden(), a_sequence()
    pending.begin([{0: numbered(0)}, {0: numbered(1)}])
    pending.note(sequence, 0, [0, 1])
    pending.add({0: numbered(*range(2, 20))})
    pending.note(sequence, 2, range(18))
    assert numbers(pending.gather(pending.pieces(sequence, 0, 20))) == list(range(20))


def test_rows_of_the_ring_and_of_the_step_alternate():
    """Two sequences, of each a position in the ring and one of the latest step."""
    pending, sequences = pending_hidden(), [a_sequence("a"), a_sequence("b")]
    for step in range(2):
        pending.begin([{0: numbered(step, 10 + step)}])
        for row, sequence in enumerate(sequences):
            pending.note(sequence, step, [row])
    pieces = [piece for sequence in sequences for piece in pending.pieces(sequence, 0, 2)]
    assert numbers(pending.gather(pieces)) == [0, 1, 10, 11]


def test_a_forgotten_sequence_writes_nothing_to_a_place_of_another():
    pending, one, other = pending_hidden(), a_sequence("a"), a_sequence("b")
    pending.put(one, 0, numbered(1)[0])
    pending.begin([{0: numbered(5, 6)}])
    pending.note(one, 1, [0])
    pending.forget(one)
    pending.note(other, 1, [1])
    pending.begin(())
    assert read(pending.ring, other.place, range(1, 2)) == [6]
    assert one.place < 0


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_steps_are_read_as_they_were_noted(seed):
    """Several sequences, of which much or little waits: some rows of long steps, some in the ring."""
    rng, pending = random.Random(seed), PendingHidden((0,), torch.zeros(0, W), LENGTH)
    sequences, end = [FedSequence.of(a_request(f"{i}")) for i in range(3)], [0] * 3
    for sequence in sequences:
        sequence.num_fed = 1
    for _ in range(40):
        counts = [rng.choice((0, 1, 2, 5, LENGTH + 3)) for _ in sequences]
        step = [100 * i + end[i] + n for i, count in enumerate(counts) for n in range(count)]
        if rng.random() < 0.3:
            pending.add({0: numbered(*step, -1)})
        else:
            pending.begin([{0: numbered(*step, -1)}])  # the last row is of a rejected draft token
        row = 0
        for i, (sequence, count) in enumerate(zip(sequences, counts, strict=True)):
            if count:
                pending.note(sequence, end[i], range(row, row + count))
            row, end[i] = row + count, end[i] + count
        for i, sequence in enumerate(sequences):
            first = sequence.num_fed - 1
            if first < end[i] and rng.random() < 0.6:
                begin, last = sorted((rng.randint(first, end[i] - 1), rng.randint(first + 1, end[i])))
                pieces = pending.pieces(sequence, begin, last)
                if begin < last:
                    assert numbers(pending.gather(pieces)) == [100 * i + p for p in range(begin, last)]
                assert begin < last or pieces == []
            if rng.random() < 0.4:
                sequence.num_fed = rng.randint(sequence.num_fed, max(end[i], 1))
                pending.shorten(sequence, end[i])


def test_what_waits_of_a_long_step_goes_to_the_ring_when_most_of_it_was_read():
    pending, sequence = PendingHidden((0,), torch.zeros(0, W), LENGTH), FedSequence.of(a_request())
    sequence.num_fed = 1
    pending.begin([{0: numbered(*range(20))}])
    pending.note(sequence, 0, range(20))
    pending.shorten(sequence, 20)
    assert len(sequence.long) == 1  # too much waits
    sequence.num_fed = 16
    pending.shorten(sequence, 20)
    assert not sequence.long
    assert numbers(pending.gather(pending.pieces(sequence, 15, 20))) == [15, 16, 17, 18, 19]


def test_consecutive_rows_are_not_copied():
    pending, sequence = PendingHidden((0,), torch.zeros(0, W), LENGTH), FedSequence.of(a_request())
    pending.put(sequence, 2, numbered(5)[0])
    found = pending.gather([RingRows(range(2, 4)), RingRows(range(4, 5))])
    assert found.data_ptr() == pending.ring.rows[2].data_ptr()
    assert len(found) == 3


@pytest.mark.parametrize("layers", [(0, 1), (1,)])
def test_rows_are_contiguous_where_other_drafters_have_more_layers_collected(layers):
    """Native code takes no others."""
    whole = torch.randn(6, 3 * W)
    pending, sequence = PendingHidden(layers, torch.zeros(0, len(layers) * W), LENGTH), a_sequence()
    pending.begin([states_of(whole, 1, 5, (0, 1, 2))])
    pending.note(sequence, 0, range(1, 4))
    found = pending.gather(pending.pieces(sequence, 0, 3))
    assert found.is_contiguous()
    assert torch.equal(found, whole[2:5, layers[0] * W : (layers[-1] + 1) * W])


def test_a_forgotten_sequence_gives_its_place_back():
    pending, sequence = PendingHidden((0,), torch.zeros(0, W), LENGTH), FedSequence.of(a_request())
    pending.put(sequence, 2, numbered(5)[0])
    place = sequence.place
    pending.forget(sequence)
    assert sequence.place == -1
    assert pending.ring.open() == place
