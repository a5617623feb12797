"""Trained DFlash and DSpark heads against a plain implementation of their drafts: the module, the file, the engine."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from eagle_engines import eagle_engine, transformers_target, write_target
from test_block_heads import Survivals
from toy_block_heads import BLOCK, MASK, RANK, READS, STATEFUL, Reference
from toy_heads import D, H, V
from trained_blocks import LENGTH, block_options, texts, train_blocks

from specserve_eagle.training.block_heads import (
    FIRST_ATTENTION,
    FIRST_LOGITS,
    FIRST_MLP,
    block_reads,
    block_states,
)
from specserve_eagle.training.blocks import block_logits, block_loss, sample_anchors
from specserve_eagle.training.evaluate import Sampling, accepted_by_step, teacher_forced
from specserve_eagle.training.reopen import reopen
from specserve_eagle.training.run import make_module
from specserve_eagle.training.target import Target
from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.requests import toy_request

HEADS = {
    "dflash": {},
    "dspark": {},
    "reduced": {"draft_vocab": D},
    "wide": {"heads": 8, "kv_heads": 4},
    "gated": {"markov": "gated"},
    "rnn": {"markov": "rnn"},
}
"""Options by name; those with other names are DSpark heads."""
IDS = texts(2, seed=5)


def kind_of_head(name):
    return "dflash" if name == "dflash" else "dspark"


def form_of(name):
    return name if name in STATEFUL else kind_of_head(name)


@pytest.fixture(scope="module")
def target_dir(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def target(target_dir):
    return Target.load(target_dir, "cpu", "float32")


@pytest.fixture(scope="module")
def trained(tmp_path_factory, target):
    path = tmp_path_factory.mktemp("heads")
    return {name: train_blocks(kind_of_head(name), target, path / name, **HEADS[name]) for name in HEADS}


@pytest.fixture(scope="module")
def references(target_dir, trained):
    theirs = transformers_target(target_dir)
    return {name: Reference(form_of(name), trained[name].tensors, theirs) for name in HEADS}


@pytest.mark.parametrize("name", HEADS)
@torch.inference_mode()
def test_all_blocks_of_a_window_are_those_of_a_plain_implementation(target, trained, references, name):
    head = trained[name].module
    features = target.features(IDS, head.shape.reads)
    anchors = torch.tensor([1, 2, 7, LENGTH - BLOCK - 1])
    states = block_states(head, target, features, IDS, anchors)
    for window in range(len(IDS)):
        for number, anchor in enumerate(anchors.tolist()):
            expected, normed = references[name].logits(IDS[window, : anchor + 1].tolist())
            torch.testing.assert_close(states[window, number], normed, atol=1e-4, rtol=1e-4)
            base = F.linear(
                states[window, number], head.target_head.weight if head.lm_head is None else head.lm_head.weight
            )
            torch.testing.assert_close(base, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize("each_kernel_set", ["torch", "cpu"], indirect=True)
@pytest.mark.parametrize("name", HEADS)
def test_the_engine_drafts_what_the_module_says(target_dir, target, trained, name):
    recorder, head = Survivals(), trained[name].module
    prompts = [IDS[0, : 3 + 4 * i].tolist() for i in range(4)]
    requests = [toy_request(f"r{i}", prompt, max_tokens=10, ignore_eos=True) for i, prompt in enumerate(prompts)]
    engine = eagle_engine(target_dir, trained[name].path, steps=16, planner=recorder)
    made = run_requests(engine, requests).tokens()
    assert not engine.metrics.drafter_faults
    tokens = {request.request_id: [*request.prompt_token_ids, *made[request.request_id]] for request in requests}
    assert len(recorder.drafts) > 15
    for (id, count), draft in recorder.drafts.items():
        chosen, sure = chain_of(head, target, tokens[id][:count])
        assert draft == tuple(chosen[: len(draft)])
        if head.confidence_head is not None:
            survival = torch.tensor(sure).cumprod(0)[: len(draft)].tolist()
            assert recorder.survival[id, count] == pytest.approx(survival, rel=1e-3)
    assert max(map(len, recorder.drafts.values())) == head.shape.num_proposed


@torch.inference_mode()
def chain_of(head, target, tokens):
    """A greedy block behind these tokens, by the module: the draft tokens and how sure each is."""
    anchor = len(tokens) - 1
    ids = torch.tensor([[*tokens, *[0] * BLOCK]])
    states = block_states(head, target, target.features(ids, head.shape.reads), ids, torch.tensor([anchor]))[0, 0]
    before, chosen, sure = [tokens[-1]], [], []
    for count in range(1, len(states) + 1):
        *_, place = head.places(states[:count], torch.tensor(before))
        best = int(place.logits.argmax())
        chosen.append(best if head.draft_ids is None else int(head.draft_ids[best]))
        sure.append(1.0 if place.confidence is None else float(place.confidence.sigmoid()))
        before.append(chosen[-1])
    return chosen, sure


@pytest.mark.parametrize("name", HEADS)
@torch.no_grad()
def test_the_loss_is_that_of_tokens_and_confidence_weighted_by_place(target, trained, references, name):
    head = trained[name].module
    anchors = sample_anchors(IDS, 6, head.shape.num_proposed)
    wanted = target.features(IDS, ()).logits.softmax(-1)
    expected, agree = 0.0, []
    for place in range(head.shape.num_proposed):
        losses, same = [], []
        for window in range(len(IDS)):
            for anchor in anchors.tolist():
                states, rows = place_of(references[name], head, IDS[window], anchor, place)
                full = torch.full((V,), float("-inf"))
                full[torch.arange(V) if head.draft_ids is None else head.draft_ids] = rows.log_softmax(-1)
                p = wanted[window, anchor + place]
                loss = -torch.where(full.isinf(), 0.0, p * full).sum()
                if head.confidence_head is not None:
                    entry = references[name].head["markov_head.markov_w1.weight"][IDS[window, anchor + place]]
                    sure = (head.confidence_head.proj.weight[0] @ torch.cat((states, entry))).add(
                        head.confidence_head.proj.bias[0]
                    )
                    share = torch.minimum(full.exp(), p).sum()
                    loss = loss - share * F.logsigmoid(sure) - (1 - share) * F.logsigmoid(-sure)
                losses.append(loss)
                same.append(float(full.argmax() == p.argmax()))
        expected += 0.8**place * torch.stack(losses).mean()
        agree.append(torch.tensor(same).mean())
    result = block_loss(head, target, IDS, 6)
    torch.testing.assert_close(result.loss, expected, atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(torch.stack(result.greedy), torch.stack(agree))


def place_of(reference, head, ids, anchor, place):
    """(state, logits) of a place behind the text's own tokens, by the plain implementation."""
    logits, states = reference.logits(ids[: anchor + 1].tolist())
    row, memory, tensors = logits[place], torch.zeros(RANK), reference.head
    if head.markov_head is not None:
        for at in range(place + 1):
            entry = tensors["markov_head.markov_w1.weight"][ids[anchor + at]]
            read, memory = reference.markov(entry, states[at], memory)
        row = row + tensors["markov_head.markov_w2.weight"] @ read
    return states[place], row


@pytest.mark.parametrize("name", HEADS)
@torch.no_grad()
def test_acceptance_by_position_is_a_count_by_hand(target, trained, references, name):
    head, ids = reopen(trained[name].path, target), texts()
    steps = head.shape.num_proposed
    best = target.features(ids, ()).logits.argmax(-1)
    counts, drafts = torch.zeros(steps), 0
    for window in range(len(ids)):
        for anchor in range(1, LENGTH - steps):
            drafts += 1
            for place in range(steps):
                chosen = int(place_of(references[name], head, ids[window], anchor, place)[1].argmax())
                token = chosen if head.draft_ids is None else int(head.draft_ids[chosen])
                if token != int(best[window, anchor + place]):
                    break
                counts[place] += 1
    figure = teacher_forced(head, target, ids, Sampling(steps), batch=1)
    assert figure.num_drafts == drafts
    torch.testing.assert_close(torch.tensor(figure.survival), counts / drafts, atol=1e-6, rtol=1e-5)
    assert counts[1] > 3


def test_a_shorter_draft_of_a_block_is_its_beginning(target, trained):
    head, sampling = trained["dspark"].module, Sampling(2, 0.8)
    features = target.features(IDS, head.shape.reads)
    with torch.no_grad():
        whole = list(block_logits(head, target, features, IDS, BLOCK))
        assert all(torch.equal(a, b) for a, b in zip(block_logits(head, target, features, IDS, 2), whole, strict=False))
        accepted = list(accepted_by_step(head, target, IDS, sampling))
        for place, logits in enumerate(whole[:2]):
            at = slice(1 + place, 1 + place + logits.shape[1])
            p = (features.logits[:, at] / 0.8).softmax(-1)
            expected = torch.minimum(p, (logits / 0.8).softmax(-1)).sum(-1)
            torch.testing.assert_close(accepted[place], expected)


def test_nothing_but_the_confidence_head_learns_from_its_loss(target, trained):
    head = trained["dspark"].module
    states = torch.randn(3, BLOCK, H, requires_grad=True)
    sum(place.confidence.sum() for place in head.places(states, torch.arange(3 * BLOCK).view(3, -1))).backward()
    assert states.grad is None
    learnt = {name for name, parameter in head.named_parameters() if parameter.grad is not None}
    assert learnt == {"confidence_head.proj.weight", "confidence_head.proj.bias"}


def test_anchors_leave_room_for_a_block_and_depend_on_the_text_and_the_step():
    ids = texts(3)
    drawn = sample_anchors(ids, 6, BLOCK)
    assert drawn.tolist() == sorted(set(drawn.tolist()))
    assert len(drawn) == 6
    assert torch.equal(drawn, sample_anchors(ids, 6, BLOCK))
    assert not torch.equal(drawn, sample_anchors(ids, 6, BLOCK, step=1))
    assert not torch.equal(drawn, sample_anchors(texts(3, seed=4), 6, BLOCK))
    assert sample_anchors(ids, 999, BLOCK).tolist() == list(range(1, LENGTH - BLOCK))


def test_a_head_begins_as_the_targets_last_layers(target):
    head = make_module(block_options("dspark", ".", draft_vocab=D), target, texts().flatten())
    for mine, theirs in zip(head.layers, target.model.layers, strict=True):
        for name, rows in theirs.qkv_proj.parts.items():
            assert torch.equal(getattr(mine.self_attn, name).weight, theirs.qkv_proj.weight[rows])
        assert torch.equal(mine.mlp.down_proj.weight, theirs.mlp.down_proj.weight * FIRST_MLP)
        assert torch.equal(mine.self_attn.o_proj.weight, theirs.o_proj.weight * FIRST_ATTENTION)
        assert torch.equal(mine.input_layernorm.weight, theirs.input_norm)
    assert torch.equal(head.norm.weight, target.model.final_norm * FIRST_LOGITS)
    assert torch.equal(head.lm_head.weight, target.model.lm_head.weight[head.draft_ids])
    assert not head.markov_head.markov_w2.weight.any()


def test_a_head_reads_early_middle_and_late_states():
    assert [block_reads(count) for count in (1, 2, 3, 16, 36)] == [(1,), (1, 2), (1, 2), (2, 8, 14), (2, 18, 34)]


@pytest.mark.parametrize("name", HEADS)
def test_a_config_says_what_other_engines_read(trained, name):
    config = json.loads((trained[name].path / "config.json").read_text())
    common = {
        "model_type": "qwen3",
        "num_hidden_layers": 2,
        "block_size": BLOCK,
        "num_target_layers": 2,
        "vocab_size": V,
    }
    if name == "dflash":
        expected = {"architectures": ["DFlashDraftModel"]}
        expected |= {"dflash_config": {"mask_token_id": MASK, "target_layer_ids": list(READS)}}
    else:
        expected = {"architectures": ["Qwen3DSparkModel"], "mask_token_id": MASK, "target_layer_ids": list(READS)}
        kind = HEADS[name].get("markov", "vanilla")
        expected |= {"markov_rank": RANK, "markov_head_type": kind, "sample_from_anchor": True}
        expected |= {"enable_confidence_head": True, "confidence_head_with_markov": True}
        expected |= {"draft_vocab_size": D} if name == "reduced" else {}
    assert {key: config.get(key) for key in common | expected} == common | expected
    assert ("draft_vocab_size" in config) == (name == "reduced")
