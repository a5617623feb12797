"""Heads that training writes are read back, and compute what the reference computes with the tensors that were read."""

from __future__ import annotations

import pytest
import torch
from reference_heads import FORWARDS

from specserve.models.rope import rotary_table
from specserve_eagle.checkpoints import draft_ids, open_head, read_head_config
from specserve_eagle.training.export import export
from specserve_eagle.training.heads import Eagle1Head, Eagle3Head, MtpHead
from specserve_eagle.training.modules import HeadShape, Rotation
from specserve_eagle.training.target import Target
from specserve_workbench.testing.toy import write_checkpoint

N, IDS = 10, torch.arange(3, 100, 2)
HEADS = {
    "eagle3": lambda target, shape: Eagle3Head(target, shape, IDS),
    "eagle": Eagle1Head,
    "mtp": MtpHead,
}


def trained_head(path, kind):
    """(a head with random bfloat16 weights, its target), written to `path`."""
    target = Target.load(write_checkpoint(path / "target", num_hidden_layers=6), "cpu", "float32")
    torch.manual_seed(5)
    head = HEADS[kind](target, HeadShape.of(target.config))
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_((parameter + 0.05 * torch.randn_like(parameter)).bfloat16())
    (path / "head").mkdir()
    export(head, target.files, path / "head")
    return head, target


def read_back(path, target):
    """(canonical tensors in float32, config)"""
    config = read_head_config(path, target.config)
    checkpoint = open_head(path, config)
    tensors = {name: checkpoint.take(name) for name in checkpoint.canonical_names}
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}, config


@pytest.mark.parametrize("kind", HEADS)
def test_a_trained_head_is_the_reference_with_the_tensors_that_are_read(tmp_path, kind):
    head, target = trained_head(tmp_path, kind)
    tensors, config = read_back(tmp_path / "head", target)
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(N, config.hidden_size, generator=generator)
    tokens = torch.randint(config.vocab_size, (N,), generator=generator)
    embedding, table = target.model.embedding, target.model.lm_head.weight
    angles = rotary_table(target.config, N + 1)
    rotation = Rotation(angles.cos[1:, 0], angles.sin[1:, 0])
    with torch.inference_mode():
        expected = FORWARDS[kind](tensors, config, hidden, tokens, embedding, table)
        own, logits = head(embedding[tokens][None], hidden[None], rotation, [])
    torch.testing.assert_close(own[0], expected[0], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(logits[0], expected[1], rtol=1e-3, atol=1e-3)


def test_a_trained_eagle3_head_reads_the_layers_that_it_was_trained_on(tmp_path):
    head, target = trained_head(tmp_path, "eagle3")
    config = read_head_config(tmp_path / "head", target.config)
    assert config.hidden_layers == head.layers == (2, 3, 3)
    assert torch.equal(draft_ids(open_head(tmp_path / "head", config), config), IDS)
