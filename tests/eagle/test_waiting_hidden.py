"""Hidden states that wait for a draft model: in a ring for each sequence, or as rows of a long step."""

from __future__ import annotations

import random

import pytest
import torch
from runtime_cases import a_request

from specserve.draft_models.sequences import FedSequence
from specserve.draft_models.waiting_hidden import HiddenRing, LongRows, gather, joined

W, LENGTH = 6, 8


def numbered(*positions):
    """[n, W] rows that hold these numbers."""
    return torch.tensor(positions, dtype=torch.float32)[:, None].expand(-1, W).contiguous()


def numbers(rows):
    return rows[:, 0].int().tolist()


def a_ring():
    return HiddenRing(torch.zeros(0, W), LENGTH)


def test_layers_are_joined_in_the_order_in_which_the_drafter_names_them():
    layers = {3: torch.full((2, 3), 3.0), 1: torch.full((2, 3), 1.0)}
    assert joined(layers, (3, 1)).tolist() == [[3.0] * 3 + [1.0] * 3] * 2


def test_a_single_layer_is_not_copied():
    rows = torch.randn(4, W)
    assert joined({2: rows}, (2,)) is rows


def test_columns_of_one_tensor_are_not_copied():
    whole = torch.randn(4, 2 * W)
    found = joined(dict(enumerate(whole.split_with_sizes([W, W], 1))), (0, 1))
    assert found.data_ptr() == whole.data_ptr()
    assert torch.equal(found, whole)


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
    ring.put(place, 3, numbered(7)[0])
    for _ in range(4):
        ring.open()
    assert numbers(gather([ring.indices(place, range(3, 4))], ring.rows)) == [7]


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_steps_are_read_as_they_were_noted(seed):
    """Several sequences, whose windows never exceed the ring: some rows long, some in the ring."""
    rng, ring = random.Random(seed), a_ring()
    sequences = [FedSequence.of(a_request(f"{i}")) for i in range(3)]
    first, end = [0] * 3, [0] * 3
    for _ in range(30):
        step, rows = [], 0
        for i, sequence in enumerate(sequences):
            count = rng.randint(0, 5)
            span = range(end[i], end[i] + count)
            if not count:
                continue
            skipped = [-1] * rng.randint(0, 2)  # rows of rejected draft tokens
            if end[i] + count - first[i] > LENGTH:
                sequence.long.append(LongRows(end[i], numbered(*(100 * i + p for p in span))))
            else:
                if sequence.place < 0:
                    sequence.place = ring.open()
                ring.note(range(rows, rows + count), sequence.place, end[i])
            step += [*(100 * i + p for p in span), *skipped]
            rows += count + len(skipped)
            end[i] += count
        ring.flush(numbered(*step) if step else torch.zeros(0, W))
        for i, sequence in enumerate(sequences):
            if first[i] < end[i]:
                pieces = sequence.pieces(ring, first[i], end[i])
                assert numbers(gather(pieces, ring.rows)) == [100 * i + p for p in range(first[i], end[i])]
            if rng.random() < 0.4 or end[i] - first[i] > LENGTH:
                first[i], sequence.long = end[i], []


def test_a_step_without_noted_rows_writes_nothing():
    ring = a_ring()
    place = ring.open()
    ring.note([0], place, 2)
    ring.flush(numbered(5))
    ring.flush(numbered(9))
    assert numbers(gather([ring.indices(place, range(2, 3))], ring.rows)) == [5]


def test_consecutive_rows_are_not_copied():
    ring = a_ring()
    ring.open()
    found = gather([range(2, 4), range(4, 5)], ring.rows)
    assert found.data_ptr() == ring.rows[2].data_ptr()
    assert len(found) == 3


def test_rows_of_the_ring_and_of_long_steps_are_gathered_in_order():
    ring = a_ring()
    place = ring.open()
    for position in range(LENGTH):
        ring.put(place, position, numbered(position)[0])
    found = gather([[1], numbered(20, 21), [5, 6], [0]], ring.rows)
    assert numbers(found) == [1, 20, 21, 5, 6, 0]
