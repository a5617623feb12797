"""The loss of training and its gradient against torch's own, and attention by groups against attention over all."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from specserve_eagle.training.block_modules import block_mask
from specserve_eagle.training.grouped_attention import DRAFTS_AT_ONCE, KeysAndValues, attention_by_group, groups_of
from specserve_eagle.training.matching import match
from specserve_eagle.training.modules import ROWS_AT_ONCE, unrolled_attention
from specserve_eagle.training.teacher import ROWS_AT_ONCE as ROWS_OF_LOGITS
from specserve_eagle.training.teacher import teacher_of
from specserve_eagle.training.uno_module import noise_mask

V = 12
DRAFT_IDS = {"whole": None, "reduced": torch.tensor([0, 2, 3, 7, 11])}


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", DRAFT_IDS)
def test_loss_and_gradient_of_logits_are_those_of_autograd(name):
    ids = DRAFT_IDS[name]
    width, positions = V if ids is None else len(ids), ROWS_OF_LOGITS - 3
    teacher = teacher_of(random(2, positions, V) * 3, ids)
    terms = tuple(random(2, positions, width, seed=seed).requires_grad_() for seed in (1, 2))
    log_q = (terms[0] + terms[1]).log_softmax(-1)
    expected = -(teacher.probabilities * log_q).sum(-1).mean() * 0.8
    wanted = torch.autograd.grad(expected, terms)
    found = match(terms, teacher)
    torch.testing.assert_close(found.loss * 0.8, expected)
    for mine, theirs in zip(torch.autograd.grad(found.loss * 0.8, terms), wanted, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert torch.equal(found.agrees, log_q.argmax(-1) == teacher.best)
    torch.testing.assert_close(found.overlap, torch.minimum(log_q.exp(), teacher.probabilities).sum(-1))


def test_a_share_of_sampled_drafts_is_what_two_distributions_have_in_common():
    teacher = teacher_of(torch.tensor([[[0.0, 0.0, -99.0]]]), None)
    found = match((torch.tensor([[[0.25, 0.25, 0.5]]]).log(),), teacher)
    assert float(found.overlap) == pytest.approx(0.5)


def test_a_gradient_has_the_type_of_the_logits_and_frozen_logits_have_none():
    learnt, frozen = random(1, 5, V).bfloat16().requires_grad_(), random(1, 5, V, seed=1).bfloat16()
    match((frozen, learnt), teacher_of(random(1, 5, V, seed=2), None)).loss.backward()
    assert learnt.grad.dtype is torch.bfloat16
    assert frozen.grad is None


@pytest.mark.parametrize(
    "mask_of",
    [
        partial(block_mask, block_size=3),
        partial(noise_mask, width=3, window=None),
        partial(noise_mask, width=3, window=5),
    ],
    ids=["blocks", "adapter", "adapter with a window"],
)
def test_attention_by_groups_is_attention_over_all_the_text_and_all_rows(mask_of):
    anchors = torch.arange(1, 2 * DRAFTS_AT_ONCE + 2)
    length, rows = len(anchors) + 7, 3 * len(anchors)
    q = random(2, 4, rows, 8)
    text, own = (KeysAndValues(random(2, 2, n, 8, seed=n), random(2, 2, n, 8, seed=n + 1)) for n in (length, rows))
    k, v = (torch.cat(pair, 2) for pair in zip(text, own, strict=True))
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask_of(anchors, length), scale=0.3, enable_gqa=True)
    found = attention_by_group(q, text, own, groups_of(anchors, 3, mask_of), 0.3)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("num_steps", [2, 4])
def test_unrolled_attention_is_attention_over_the_text_and_the_own_pairs_of_each_step(num_steps):
    length = ROWS_AT_ONCE + 5
    q = random(1, 2, length, 4)
    steps = [(random(1, 2, length, 4, seed=2 * i), random(1, 2, length, 4, seed=2 * i + 1)) for i in range(num_steps)]
    k, v = (torch.cat(each, 2) for each in zip(*steps, strict=True))
    mask = torch.cat((torch.ones(length, length).tril(), *[torch.eye(length)] * (num_steps - 1)), 1).bool()
    torch.testing.assert_close(unrolled_attention(q, steps), F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
