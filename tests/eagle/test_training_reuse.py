"""A batch that comes again is learned from again, and its target does not read it again."""

from __future__ import annotations

from collections import Counter
from itertools import islice, pairwise
from unittest.mock import patch

import pytest
import torch
from training_cases import make_head, make_trainer, stream, write_target

from specserve_eagle.training import teacher
from specserve_eagle.training.loop import Budget
from specserve_eagle.training.target import Target
from specserve_eagle.training.teacher import LessonMemory, lessons_kept, teacher_of
from specserve_eagle.training.text import Windows
from specserve_eagle.training.unroll import unroll


@pytest.fixture
def target(tmp_path):
    return Target.load(write_target(tmp_path / "target"), "cpu")


def drawn(reuse: int, recent: int, count: int, skip: int = 0) -> list[tuple[int, ...]]:
    windows = Windows(torch.arange(4000), length=10, batch=2, seed=1, reuse=reuse, recent=recent)
    return [tuple(ids.flatten().tolist()) for ids in islice(windows.batches(skip), count)]


@pytest.mark.parametrize("recent", [1, 4, 99])
def test_every_batch_comes_as_often_as_asked_for(recent):
    seen = Counter(drawn(3, recent, 57))
    new = drawn(1, 1, 57)
    assert set(seen) <= set(new)
    assert max(seen.values()) == 3
    assert sum(count == 3 for count in seen.values()) >= 19 - 2 * min(recent, 5)


def test_batches_that_come_again_are_mixed_with_others_and_resumed_at_any_step():
    order = drawn(3, 4, 40)
    at_once = drawn(3, 1, 40)
    assert sum(a == b for a, b in pairwise(at_once)) > 20
    assert sum(a == b for a, b in pairwise(order)) < 10
    assert drawn(3, 4, 15, skip=25) == order[25:]


def test_the_first_batches_of_a_short_run_come_again_soon():
    order = drawn(4, 32, 12)
    assert len(set(order)) < 7


@pytest.mark.parametrize("recent", [1, 3, 32])
def test_no_more_batches_wait_than_are_kept(recent):
    order = drawn(4, recent, 400)
    first, last = {}, {}
    for step, batch in enumerate(order):
        first.setdefault(batch, step)
        last[batch] = step
    used_up = {batch for batch, count in Counter(order).items() if count == 4}
    for step in range(400):
        waiting = [batch for batch, begin in first.items() if begin <= step <= last[batch] and batch in used_up]
        assert len(waiting) <= recent
    assert 100 <= len(first) <= 100 + recent


@pytest.mark.parametrize("kept", [1, 2, 5])
def test_a_batch_is_read_once_with_room_for_few(target, tmp_path, monkeypatch, kept):
    trainer, windows = make_trainer("eagle3", target, tmp_path)
    target.memory = LessonMemory(3)
    trainer.run(windows, Budget(max_steps=1))
    monkeypatch.setattr(teacher, "ROOM", kept * target.memory.num_bytes)
    target.memory = LessonMemory(3)
    windows.reuse, windows.recent, trainer.progress.step = 3, kept, 0
    with patch.object(target, "features", wraps=target.features) as features:
        trainer.run(windows, Budget(max_steps=40))
    new = len({tuple(ids.flatten().tolist()) for ids in islice(windows.batches(), 40)})
    assert features.call_count == new <= 14 + kept
    assert len(target.memory.lessons) <= kept


def test_the_target_reads_a_batch_once_while_there_is_room(target, monkeypatch):
    head = make_head("eagle3", target)
    first, second = stream()[:40].view(2, 20), stream()[40:80].view(2, 20)
    target.memory = LessonMemory(9)
    with patch.object(target, "features", wraps=target.features) as features:
        once, again = unroll(head, target, first, 3), unroll(head, target, first, 3)
        assert features.call_count == 1
        assert torch.equal(once.loss, again.loss)
        unroll(head, target, second, 3)
        unroll(head, target, first, 3)
        assert features.call_count == 2
        monkeypatch.setattr(teacher, "ROOM", target.memory.num_bytes - 1)
        unroll(head, target, stream()[80:120].view(2, 20), 3)
        assert unroll(head, target, first, 3).loss == once.loss
        assert features.call_count == 4
        assert target.memory.num_bytes <= teacher.ROOM
    target.memory = None
    torch.testing.assert_close(unroll(head, target, first, 3).loss, once.loss, rtol=5e-3, atol=0)


def test_as_many_batches_are_kept_as_there_is_room_for():
    assert lessons_kept(1, 4, 2, 8) == teacher.ROOM // (4 * 4 * 2 + 2 * 8 + 8)
    assert lessons_kept(10**9, 4, 2, 8) == 1


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_probabilities_of_a_draft_vocabulary_are_those_of_the_whole_one(temperature):
    logits, ids = torch.randn(3, 50, 90), torch.tensor([0, 5, 7, 89])
    whole = (logits / temperature).softmax(-1)
    got = teacher_of(logits, ids, temperature)
    torch.testing.assert_close(got.probabilities, whole[..., ids])
    best = logits.argmax(-1)
    for number, wanted in zip(got.best.flatten().tolist(), best.flatten().tolist(), strict=True):
        assert (ids[number] if number >= 0 else None) == (wanted if wanted in ids else None)


def test_a_head_learns_from_batches_that_come_again(target, tmp_path):
    target.memory = LessonMemory(3)
    losses = []
    trainer, windows = make_trainer("eagle3", target, tmp_path, lambda progress, _: losses.append(progress.loss))
    windows.reuse, windows.recent = 3, 4
    with patch.object(target, "features", wraps=target.features) as features:
        trainer.run(windows, Budget(max_steps=30))
    assert losses[-1] < losses[0]
    assert features.call_count < 18
