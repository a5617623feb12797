"""How the Markov head of a DSpark head begins, and what each kind of it learns."""

from __future__ import annotations

import pytest
import torch

from specserve_eagle.training.markov_heads import MarkovHead, principal_components

V, H, RANK = 40, 6, 4


def markov_head(kind):
    torch.manual_seed(0)
    return MarkovHead(torch.randn(V, 8), H, V, RANK, kind)


@pytest.mark.parametrize("kind", ["vanilla", "gated", "rnn"])
def test_it_begins_as_nothing_and_reads_a_tokens_entry(kind):
    head = markov_head(kind)
    entry = head.markov_w1(torch.arange(5))
    read, memory = head.read(entry, torch.randn(5, H), None)
    assert not head.markov_w2(read).any()
    torch.testing.assert_close(read, {"vanilla": entry, "gated": entry / 2, "rnn": entry.tanh()}[kind])
    if kind == "rnn":
        torch.testing.assert_close(memory, entry.tanh() / 2)


def test_every_part_of_a_memory_learns_from_the_first_step():
    head = markov_head("rnn")
    torch.nn.init.normal_(head.markov_w2.weight)
    memory, total = None, 0.0
    for place in range(3):
        read, memory = head.read(head.markov_w1(torch.arange(place, place + 5)), torch.randn(5, H), memory)
        total = total + head.markov_w2(read).square().sum()
    total.backward()
    gradient = head.joint_proj.weight.grad
    assert gradient[2 * RANK :].abs().min() > 0, "what is read"
    head.zero_grad()
    with torch.no_grad():
        head.joint_proj.weight.add_(0.01 * gradient)
    read, memory = head.read(head.markov_w1(torch.arange(5)), torch.randn(5, H), None)
    head.markov_w2(head.read(head.markov_w1(torch.arange(5)), torch.randn(5, H), memory)[0]).square().sum().backward()
    assert head.joint_proj.weight.grad[: 2 * RANK, RANK:].abs().min() > 0, "gates and what is kept"


def test_a_markov_head_begins_with_what_tokens_differ_by_in_the_targets_embedding():
    rows = torch.randn(500, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([5.0, 0.1, 2.0]) + 7
    found = principal_components(rows, 2)
    assert found.std() == pytest.approx(1.0)
    for mine, theirs in zip(found.T, (rows[:, 0], rows[:, 2]), strict=True):
        assert abs(float(torch.corrcoef(torch.stack((mine, theirs)))[0, 1])) > 0.99
    assert found[:, 0].std() > found[:, 1].std()
    assert principal_components(rows, 5).shape == (500, 5)
