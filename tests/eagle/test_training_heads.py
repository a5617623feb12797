"""The arithmetic of training: features, unrolled heads and losses, each against an independent computation."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from training_cases import KINDS, LAYERS, VOCAB, make_head, stream, write_target
from transformers import AutoModelForCausalLM

from specserve_eagle.training.loop import make_optimizers
from specserve_eagle.training.modules import Rotation
from specserve_eagle.training.standalone import distill
from specserve_eagle.training.target import Target
from specserve_eagle.training.unroll import acceptance_length, unroll, unrolled_logits

IDS = stream(40).view(2, 20)
HEADS = ("eagle3", "eagle", "mtp")


@pytest.fixture(scope="module")
def target_dir(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def target(target_dir):
    return Target.load(target_dir, "cpu")


MODELS = [
    {},
    {"architecture": "mistral", "sliding_window": 6},
    {"architecture": "qwen3"},
    {"architecture": "gemma3_text", "layer_types": ["sliding_attention"] * LAYERS, "final_logit_softcapping": 0.5},
    {"architecture": "granite", "logits_scaling": 4.0},
]


@pytest.mark.parametrize("model", MODELS)
def test_the_targets_features_are_those_of_transformers(tmp_path, model):
    path = write_target(tmp_path, **model)
    theirs = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        expected = theirs(IDS, output_hidden_states=True)
    ours = Target.load(path, "cpu").features(IDS, tuple(range(LAYERS)))
    for layer in range(LAYERS):
        torch.testing.assert_close(ours.hidden[layer], expected.hidden_states[layer], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.final, expected.hidden_states[-1], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.logits, expected.logits, atol=1e-3, rtol=1e-4)


def test_autocast_of_the_head_does_not_change_the_target(target):
    plain = target.features(IDS, ())
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(target.features(IDS, ()).logits, plain.logits)


def drafted_naively(head, target, features, position, num_steps):
    """Draft after `position` by the definition: all true pairs up to there, then the head's own one by one."""
    first, table = head.first(features), target.model.rotary
    embedded = F.embedding(IDS, target.model.embedding)
    tokens = [embedded[:, i + 1] for i in range(position + 1)]
    states = [first[:, i] for i in range(position + 1)]
    for step in range(num_steps):
        size = len(states)
        rotation = Rotation(table.cos[:size, 0], table.sin[:size, 0])
        hidden, logits = head(torch.stack(tokens, 1), torch.stack(states, 1), rotation, [])
        yield logits[:, -1]
        states.append(hidden[:, -1])
        tokens.append(embedded[:, position + step + 2])


@pytest.mark.parametrize("kind", HEADS)
@torch.no_grad()
def test_an_unrolled_head_sees_what_it_sees_when_it_drafts(target, kind):
    head, num_steps = make_head(kind, target), 5
    features = target.features(IDS, head.layers)
    unrolled = list(unrolled_logits(head, target, features, IDS, num_steps))
    assert {logits.shape[1] for logits in unrolled} == {IDS.shape[1] - num_steps - 1}
    for position in range(unrolled[0].shape[1]):
        naive = drafted_naively(head, target, features, position, num_steps)
        for step, expected in enumerate(naive):
            torch.testing.assert_close(unrolled[step][:, position], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", HEADS)
@torch.no_grad()
def test_the_loss_is_the_weighted_cross_entropy_to_the_targets_distribution(target, kind):
    head = make_head(kind, target)
    features = target.features(IDS, head.layers)
    chosen = torch.arange(VOCAB) if head.draft_ids is None else head.draft_ids
    expected, agree, share = 0.0, [], []
    for step, logits in enumerate(unrolled_logits(head, target, features, IDS, 3)):
        wanted = features.logits[:, step + 1 : step + 1 + logits.shape[1]]
        full = torch.full((*logits.shape[:2], VOCAB), float("-inf"))
        full[..., chosen] = logits.log_softmax(-1)
        products = torch.where(full.isinf(), 0.0, wanted.softmax(-1) * full)
        expected -= 0.8**step * products.sum(-1).mean()
        agree.append((full.argmax(-1) == wanted.argmax(-1)).float().mean())
        share.append(torch.minimum(full.exp(), wanted.softmax(-1)).sum(-1).mean())
    result = unroll(head, target, IDS, 3)
    torch.testing.assert_close(result.loss, expected)
    assert result.greedy == agree
    torch.testing.assert_close(torch.stack(result.overlap), torch.stack(share))


@torch.no_grad()
def test_a_stand_alone_model_is_distilled_at_every_position(target):
    model = make_head("standalone", target)
    logits = model(IDS, Rotation(target.model.rotary.cos[:20, 0], target.model.rotary.sin[:20, 0]))
    wanted = target.features(IDS, ()).logits
    expected = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(0, 1).softmax(-1))
    torch.testing.assert_close(distill(model, target, IDS).loss, expected)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "uno"])
def test_every_parameter_has_one_optimiser(target, kind):
    head = make_head(kind, target)
    muon, adam = make_optimizers(head)
    groups = [[id(p) for group in optimizer.param_groups for p in group["params"]] for optimizer in (muon, adam)]
    assert sorted(groups[0] + groups[1]) == sorted(id(p) for p in head.parameters())
    by_adam = {name for name, p in head.named_parameters() if id(p) in groups[1]}
    tables = ("lm_head", "embed_tokens", "markov_head.markov_w1", "markov_head.markov_w2", "confidence_head.proj")
    others = {name for name, _ in head.named_parameters() if name.startswith(tables)}
    assert {name for name in by_adam if "norm" not in name} == others
    assert any(name.endswith(("norm.weight", "layernorm.weight")) for name in by_adam)


def test_the_heads_keep_nothing_of_the_target_among_their_parameters(target):
    assert not any("target" in name for kind in HEADS for name in make_head(kind, target).state_dict())


def test_the_draft_vocabulary_is_the_most_frequent_tokens(target):
    head = make_head("eagle3", target, draft_vocab=10)
    counts = sorted((-int((stream() == token).sum()), token) for token in range(VOCAB))
    assert head.draft_ids.tolist() == sorted(token for _, token in counts[:10])


def test_an_acceptance_length_counts_the_bonus_token():
    assert acceptance_length([0.5, 0.5, 0.0]) == 1 + 0.5 + 0.25


@torch.no_grad()
def test_an_eagle_head_begins_with_the_targets_keys_and_outputs_of_its_size(tmp_path):
    """Behind the final norm, without a norm of its own: as the target's last layer has them behind its norm."""
    target = Target.load(write_target(tmp_path), "cpu")
    last, gain = target.model.layers[-1], target.model.final_norm
    gain.copy_(torch.rand(len(gain)) * 20 + 1)
    layer = make_head("eagle", target).layer
    normed = F.rms_norm(torch.randn(5, len(gain)), (len(gain),))
    expected = F.linear(normed * last.input_norm, last.qkv_proj.weight[last.qkv_proj.parts["k_proj"]])
    torch.testing.assert_close(layer.self_attn.k_proj(normed * gain), expected, atol=1e-4, rtol=1e-4)
    factors = layer.mlp.down_proj.weight / last.mlp.down_proj.weight
    assert factors.std(1).max() < 1e-4
    torch.testing.assert_close(factors[:, 0] / factors[0, 0], gain / gain[0], atol=1e-4, rtol=1e-4)
