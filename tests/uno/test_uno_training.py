"""Draft adapters from `specserve-eagle train --head uno`: the module against the engine, the loss, the files."""

from __future__ import annotations

import json
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file
from training_cases import TEXT
from uno_engines import Witness, uno_engine

from drafted_requests import mixed_requests
from specserve.errors import ModelError
from specserve_eagle.block.config import MAX_BLOCK
from specserve_eagle.card import read_card
from specserve_eagle.cli import main
from specserve_eagle.training import uno_loss as uno_loss_module
from specserve_eagle.training import uno_module, uno_options
from specserve_eagle.training.blocks import sample_anchors
from specserve_eagle.training.evaluate import Sampling, teacher_forced
from specserve_eagle.training.loop import make_optimizers
from specserve_eagle.training.reopen import reopen
from specserve_eagle.training.target import Target
from specserve_eagle.training.uno_export import export_adapter
from specserve_eagle.training.uno_loss import uno_logits, uno_loss
from specserve_eagle.training.uno_module import DraftAdapterModule, UnoShape, noise_logits
from specserve_lora.uno import config, noise, options, plugin
from specserve_lora.uno.noise import noise_tokens
from specserve_workbench.testing.engines import plain_run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request
from specserve_workbench.testing.toy import write_checkpoint

SHAPE = UnoShape(block_size=5, mask_token=TOY_VOCAB - 9, rank=3)
ARCHITECTURES = {
    "llama": {},
    "mistral": {"architecture": "mistral", "sliding_window": 6},
    "qwen3": {"architecture": "qwen3", "tie_word_embeddings": True},
    "gemma3": {"architecture": "gemma3_text"},
}
LENGTH = 24


def test_adapters_are_trained_within_the_bounds_that_they_are_served_within():
    assert (uno_options.MAX_RANK, uno_options.DEFAULT_BLOCK) == (plugin.MAX_RANK, config.DEFAULT_BLOCK)
    assert (MAX_BLOCK, uno_options.LEAST_END) == (options.MAX_DRAFT_TOKENS, options.LEAST_END)
    assert uno_module.FIRST_TOKEN == noise.FIRST


def made(path, **numbers):
    """A target, and a module whose adapter says something."""
    target = Target.load(write_checkpoint(path, **numbers), "cpu", "float32")
    torch.manual_seed(1)
    module = DraftAdapterModule(target, SHAPE)
    for pair in module.pairs:
        torch.nn.init.normal_(pair.up, std=0.05)
    return target, module


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained")
    return path / "target", *made(path / "target")


def windows(count=3):
    return torch.randint(1, TOY_VOCAB, (count, LENGTH), generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("name", ARCHITECTURES)
@torch.no_grad()
def test_the_engine_drafts_what_the_module_says(tmp_path, name):
    target, module = made(tmp_path / "target", **ARCHITECTURES[name])
    (tmp_path / "adapter").mkdir()
    export_adapter(module, tmp_path / "adapter")
    witness = Witness()
    engine = uno_engine(
        tmp_path / "target", tmp_path / "adapter", planner=witness, default_plugins=True, dtype="float32"
    )
    requests = [toy_request(f"r{i}", range(1 + i, 4 + 5 * i), max_tokens=20, ignore_eos=True) for i in range(3)]
    tokens = {request.request_id: list(request.prompt_token_ids) for request in requests}
    for id, more in run_requests(engine, requests).tokens().items():
        tokens[id] += more
    assert not engine.metrics.drafter_faults
    assert max(map(len, witness.drafts.values())) == SHAPE.block_size
    adapted = 0
    for (id, count), draft in witness.drafts.items():
        expected = drafted(module, target, tokens[id][:count])
        assert draft == expected[: len(draft)], (id, count)
        adapted += len(draft) > 1
    assert adapted > 10


def drafted(module, target, tokens):
    """A greedy draft behind these tokens, with the random tokens that the engine has there."""
    ids = torch.tensor([tokens])
    features = target.features(ids, module.reads)
    noise = torch.tensor(noise_tokens(len(tokens), SHAPE.block_size - 1, SHAPE.mask_token)).view(1, 1, -1)
    rows = noise_logits(module, target, features, torch.tensor([len(tokens) - 1]), noise)
    return (int(features.logits[0, -1].argmax()), *(int(each[0, 0].argmax()) for each in rows))


@torch.no_grad()
def test_the_loss_is_that_of_the_tokens_behind_the_certain_one_weighted_by_place(trained):
    _, target, module = trained
    ids = windows()
    anchors = sample_anchors(ids, 6, SHAPE.block_size)
    features = target.features(ids, module.reads)
    wanted = features.logits.softmax(-1)
    expected = 0.0
    for place, logits in enumerate(noise_logits(module, target, features, anchors, module.noise(ids, 6)), 1):
        expected -= 0.8**place * (wanted[:, anchors + place] * logits.log_softmax(-1)).sum(-1).mean()
    result = uno_loss(module, target, ids, 6)
    torch.testing.assert_close(result.loss, expected)
    assert [float(each[0]) for each in (result.greedy, result.overlap)] == [1.0, 1.0]
    assert len(result.greedy) == SHAPE.block_size


def test_nothing_but_the_adapter_learns_and_all_of_it_does(trained):
    _, target, module = trained
    uno_loss(module, target, windows(), 4).loss.backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in module.parameters())
    assert not any(projection.weight.requires_grad for projection in target.model.projections.values())
    (optimizer,) = make_optimizers(module)
    assert len(optimizer.param_groups[0]["params"]) == 2 * len(module.pairs) == 2 * 7 * target.model.num_layers
    module.zero_grad()


@torch.no_grad()
def test_an_untrained_adapter_is_nothing_and_leaves_the_target_as_it_is(trained):
    path, target, module = trained
    ids, untrained = windows(), DraftAdapterModule(target, SHAPE)
    plain = Target.load(path, "cpu", "float32")
    assert torch.equal(target.features(ids, ()).logits, plain.features(ids, ()).logits)
    noise, features = untrained.noise(ids, 1), target.features(ids, module.reads)
    (first, *_) = noise_logits(untrained, target, features, torch.tensor([9]), noise)
    alone = torch.cat((ids[:, :10], noise[:, 0, :1]), 1)
    torch.testing.assert_close(first[:, 0], plain.features(alone, ()).logits[:, -1], atol=1e-4, rtol=1e-4)
    assert sum(len(projection.deltas) for projection in target.model.projections.values()) == 4 * 2


def test_random_tokens_are_within_their_bounds_and_depend_on_the_text_and_the_step(trained):
    _, _, module = trained
    noise = module.noise(windows(), 200)
    assert noise.shape == (3, 200, SHAPE.block_size - 1)
    assert (int(noise.min()), int(noise.max())) == (1, SHAPE.mask_token - 1)
    assert torch.equal(noise, module.noise(windows(), 200))
    assert not torch.equal(noise, module.noise(windows(), 200, step=1))
    assert not torch.equal(noise[:2], module.noise(windows(2), 200))


@torch.no_grad()
def test_acceptance_begins_with_the_certain_token_and_shorter_drafts_are_beginnings(trained):
    _, target, module = trained
    ids = windows()
    figure = teacher_forced(module, target, ids, Sampling(SHAPE.block_size), batch=2)
    assert figure.survival[0] == 1.0
    assert figure.survival == sorted(figure.survival, reverse=True)
    assert figure.num_drafts == 3 * (LENGTH - SHAPE.block_size - 1)
    features = target.features(ids, module.reads)
    whole, short = (list(uno_logits(module, target, features, ids, steps)) for steps in (SHAPE.block_size, 2))
    assert len(short) == 2
    assert all(a.shape == whole[0].shape for a in whole)
    torch.testing.assert_close(short[1], whole[1])
    (certain,) = uno_logits(module, target, features, ids, 1)
    assert torch.equal(certain, whole[0])


@torch.no_grad()
def test_what_is_measured_has_the_logits_of_one_place_at_a_time(trained, monkeypatch):
    """Of the logits of random tokens: those of all places and positions do not fit into memory."""
    _, target, module = trained
    features = target.features(windows(), module.reads)
    whole = list(uno_logits(module, target, features, windows(), SHAPE.block_size))
    monkeypatch.setattr(uno_loss_module, "ANCHORS_AT_ONCE", 5)
    with patch.object(target.model, "lm_head", wraps=target.model.lm_head) as lm_head:
        for place, logits in enumerate(uno_logits(module, target, features, windows(), SHAPE.block_size)):
            torch.testing.assert_close(logits, whole[place])
            assert lm_head.call_count == place


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@torch.no_grad()
def test_an_adapter_is_what_peft_loads_and_what_is_opened_again(trained, tmp_path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    path, target, module = trained
    export_adapter(module, tmp_path)
    theirs = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32), tmp_path)
    loaded = {name: tensor for name, tensor in theirs.named_parameters() if "lora_" in name}
    written = load_file(tmp_path / "adapter_model.safetensors")
    assert len(loaded) == len(written) == 2 * len(module.pairs)
    for name, tensor in loaded.items():
        assert torch.equal(tensor, written[name.replace(".default", "")])
    again = reopen(tmp_path, target)
    assert again.shape == SHAPE
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), module.parameters(), strict=True))
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | {"lora_alpha": 6}))
    assert torch.equal(reopen(tmp_path, target).pairs[0].up, module.pairs[0].up * 2)


def test_an_adapter_is_written_in_the_dtype_that_it_is_computed_in(trained, tmp_path):
    path, _, module = trained
    halves = Target.load(path, "cpu", "bfloat16")
    again = DraftAdapterModule(halves, SHAPE)
    again.load_state_dict(module.state_dict())
    export_adapter(again, tmp_path)
    for name, tensor in load_file(tmp_path / "adapter_model.safetensors").items():
        assert tensor.dtype == torch.bfloat16, name
    read = reopen(tmp_path, halves)
    for mine, other in zip(read.pairs, module.pairs, strict=True):
        assert torch.equal(mine.up, other.up.bfloat16().float())


WRONG = {
    "no uno_config": ({"uno_config": None}, r"no draft adapter can be read"),
    "another vocabulary": ({"uno_config": {"mask_token_id": 999, "block_size": 4}}, r"mask_token_id .*; got 999"),
    "a longer draft than is served": ({"uno_config": {"mask_token_id": 9, "block_size": 65}}, r"block_size"),
    "another scale": ({"use_rslora": True}, r"adapter_config\.json: evaluation does not know use_rslora; got True"),
    "several ranks": ({"rank_pattern": {"q_proj": 2}}, r"does not know rank_pattern; got {'q_proj': 2}"),
    "several scales": ({"alpha_pattern": {"q_proj": 2}}, r"does not know alpha_pattern"),
    "DoRA": ({"use_dora": True}, r"does not know use_dora"),
    "another rank": ({"r": 2}, r"lora_A\.weight is not as expected"),
}


@pytest.mark.parametrize(("changed", "said"), WRONG.values(), ids=WRONG)
def test_an_adapter_that_was_not_trained_here_is_refused_by_file(trained, tmp_path, changed, said):
    _, target, module = trained
    export_adapter(module, tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | changed))
    with pytest.raises(ModelError, match=said):
        reopen(tmp_path, target)


def test_a_missing_tensor_is_refused_by_name(trained, tmp_path):
    _, target, module = trained
    module_of_two = DraftAdapterModule(target, SHAPE)
    module_of_two.parts, module_of_two.pairs = module.parts[1:], module.pairs[1:]
    export_adapter(module_of_two, tmp_path)
    with pytest.raises(ModelError, match=r"layers\.0\.self_attn\.q_proj\.lora_A\.weight is not as expected"):
        reopen(tmp_path, target)


def test_a_target_with_experts_is_refused_before_it_is_loaded(tmp_path, capsys):
    target = write_checkpoint(tmp_path / "target", architecture="qwen3_moe")
    (target / "model.safetensors").unlink()
    assert main(command(target, tmp_path, "--max-steps", "1")) == 2
    assert "--head uno adapts dense layers, and those of family qwen3_moe have experts" in capsys.readouterr().err


def command(target, path, *more):
    (path / "text.py").write_text(TEXT * 20)
    return [
        "train", "--target", str(target), "--data", str(path / "text.py"), "--out", str(path / "out"), "--head", "uno",
        "--length", "24", "--batch", "4", "--anchors", "6", "--block-size", "4", "--rank", "8", "--threads", "1", *more,
    ]  # fmt: skip


def test_a_trained_adapter_serves_with_its_card_and_is_resumed_with_its_own_options(tmp_path, capsys):
    target = write_checkpoint(tmp_path / "target")
    assert main(command(target, tmp_path, "--max-steps", "3")) == 0
    assert "draft model in" in capsys.readouterr().out
    assert read_card(tmp_path / "out").rates[0] == 1.0
    requests = mixed_requests(6)
    engine = uno_engine(target, tmp_path / "out", default_plugins=True)
    assert run_requests(engine, requests).decided() == plain_run(target, requests, default_plugins=True).decided()
    assert engine.drafting.guards[0].drafter.config.draft_tokens == 4
    assert main(command(target, tmp_path, "--max-steps", "4", "--resume")) == 0
    for option, was, now in (("--block-size", 4, 5), ("--rank", 8, 9), ("--mask-token", TOY_VOCAB, 9)):
        assert main(command(target, tmp_path, "--max-steps", "5", "--resume", option, str(now))) == 2
        assert f"was begun with {option} {was}; got {now}" in capsys.readouterr().err
    measured = ["--length", "24", "--threads", "1", "--data", str(tmp_path / "text.py"), "--target", str(target)]
    for steps in ("1", "4"):
        assert main(["eval", *measured, "--head", str(tmp_path / "out"), "--steps", steps]) == 0
    assert main(["eval", *measured, "--head", str(tmp_path / "out"), "--steps", "5"]) == 2
    assert "--steps must be at most 4" in capsys.readouterr().err
