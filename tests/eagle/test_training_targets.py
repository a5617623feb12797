"""Heads for targets whose layers are not plain, which training reads as they are served: what it reads is what
transformers gives, what it writes is served, and drafts then what training foresaw."""

from __future__ import annotations

import json

import pytest
import torch
from foreseen_drafts import foreseen
from training_cases import KINDS, LAYERS, TEXT, make_head, make_trainer, options, stream, write_target
from transformers import AutoModelForCausalLM

from specserve.api.reading import TextReader
from specserve.errors import ModelError
from specserve.models.decoder import DecoderModel
from specserve.models.families import family_named
from specserve.models.read_config import read_config
from specserve_eagle.training.evaluate import step_logits
from specserve_eagle.training.export import export
from specserve_eagle.training.head_rotation import head_rope
from specserve_eagle.training.options import check_against
from specserve_eagle.training.reopen import reopen
from specserve_eagle.training.run import train
from specserve_eagle.training.target import Target
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import toy_request

FULL, SLIDING = "full_attention", "sliding_attention"
GEMMA4 = {"architecture": "gemma4_text", "layer_types": [SLIDING, FULL] * 4}
TARGETS = {
    "gemma2": {"architecture": "gemma2", "layer_types": None},
    "gemma4": GEMMA4,
    "gpt_oss": {"architecture": "gpt_oss"},
    "lfm2": {"architecture": "lfm2"},
    "qwen3_5": {"architecture": "qwen3_5_text"},
}
IDS = stream(40).view(2, 20)


def pairs(kinds, chosen):
    """Every target with every kind of head; those that are not chosen in `make test-all` alone."""
    assert len(chosen) >= len(TARGETS)
    both = [(name, kind) for name in TARGETS for kind in kinds]
    marked = [pytest.param(*pair, marks=[] if pair in chosen else [pytest.mark.sweep]) for pair in both]
    return pytest.mark.parametrize(("target_dir", "kind"), marked, indirect=["target_dir"])


LEARNING = {
    ("gemma2", "eagle3"), ("gemma4", "dspark"), ("gemma4", "standalone"), ("gpt_oss", "dflash"), ("lfm2", "mtp"),
    ("qwen3_5", "eagle"), ("qwen3_5", "dspark"),
}  # fmt: skip
SERVED = {("gemma2", "eagle"), ("gemma4", "mtp"), ("gpt_oss", "eagle3"), ("lfm2", "eagle3"), ("qwen3_5", "mtp")}


@pytest.fixture(scope="module", params=TARGETS)
def target_dir(request, tmp_path_factory):
    return write_target(tmp_path_factory.mktemp(request.param), **TARGETS[request.param])


@pytest.fixture(scope="module")
def target(target_dir):
    return Target.load(target_dir, "cpu")


def test_what_is_read_of_a_target_is_what_transformers_gives(target, target_dir):
    theirs = AutoModelForCausalLM.from_pretrained(target_dir, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        expected = theirs(IDS, output_hidden_states=True)
    ours = target.features(IDS, tuple(range(LAYERS)))
    for layer in range(LAYERS):
        torch.testing.assert_close(ours.hidden[layer], expected.hidden_states[layer], atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(ours.final, expected.hidden_states[-1], atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(ours.logits, expected.logits, atol=1e-3, rtol=1e-4)


def test_a_text_leaves_nothing_behind_in_the_memory_of_the_next(target):
    """A longer one, a shorter one, and other layers."""
    alone = target.features(IDS[1:], (2,))
    target.features(stream(64).view(1, 64), (2,))
    again = target.features(IDS, (2, 3))
    assert torch.equal(again.logits[1], alone.logits[0])
    assert torch.equal(again.hidden[2][1], alone.hidden[2][0])


WRONG = {
    "no token": ([], (), "must have 1 to"),
    "too many": ([1] * 5000, (), "tokens; got 5000"),
    "a token that the model has not": ([1, 320], (), "from 0 to 319; got 1 to 320"),
    "a negative one": ([-1, 5], (), "got -1 to 5"),
    "a layer that the model has not": ([1], (2, 99), r"0 to 8 in this model; got \[99\]"),
}


@pytest.mark.parametrize(("ids", "layers", "message"), WRONG.values(), ids=WRONG)
def test_what_a_model_has_not_is_not_read(target, ids, layers, message):
    with pytest.raises(ValueError, match=message):
        TextReader(target.model).read(ids, layers)


@pairs([kind for kind in KINDS if kind != "uno"], LEARNING)
def test_a_head_learns_and_is_read_back(target, target_dir, tmp_path, kind):
    trainer, _ = make_trainer(kind, target, tmp_path)
    windows = stream(96).view(4, 24)
    before = trainer.loss_of(windows, 0).loss
    for _ in range(8):
        trainer.step(windows, 1.0)
    assert trainer.loss_of(windows, 0).loss < before
    module = trainer.module
    export(module, target.files, tmp_path)
    with torch.no_grad():
        features = target.features(IDS, tuple(range(LAYERS)))
        again, rounded = reopen(tmp_path, target), module.to(torch.bfloat16).float()
        both = zip(*(step_logits(each, target, features, IDS, 3) for each in (again, rounded)), strict=True)
        assert all(torch.equal(a, b) for a, b in both)


@pairs(["eagle3", "eagle", "mtp"], SERVED)
def test_a_served_head_drafts_what_training_foresees(target, target_dir, tmp_path, kind):
    found = foreseen(kind, target, tmp_path, {"dtype": "float32", "max_model_len": 128})
    assert found.accepted == found.expected
    assert found.expected.accepted > 6


def test_a_run_trains_measures_and_writes_a_card(target_dir, tmp_path):
    (tmp_path / "a.py").write_text(TEXT * 40)
    acceptance = train(options("eagle3", target_dir, tmp_path / "out", data=(str(tmp_path / "*.py"),)))
    assert acceptance.num_drafts
    assert (
        json.loads((tmp_path / "out" / "config.json").read_text())["rope_theta"]
        == head_rope(read_config(target_dir)).rope_theta
    )


@pytest.mark.parametrize("name", TARGETS)
def test_no_adapter_is_trained_through_layers_that_are_not_plain(tmp_path, name):
    """The text does not exist: it is not read."""
    path = write_target(tmp_path / "target", **TARGETS[name])
    with pytest.raises(ModelError, match=r"must be plain ones; those of family .* have .*Train a head for it"):
        train(options("uno", path, tmp_path / "out", data=(str(tmp_path / "none.txt"),)))
    assert not (tmp_path / "out").exists()


PARTS = {
    "gemma2": "capped scores",
    "gemma4": "heads of several sizes, or shared keys and values, norms of values, scales",
    "gpt_oss": "sinks",
    "lfm2": "mixers in place of attention",
    "qwen3_5": "mixers in place of attention",
}


@pytest.mark.parametrize("name", PARTS)
def test_what_is_not_plain_is_named(tmp_path, name):
    config = read_config(write_target(tmp_path, **TARGETS[name]))
    with pytest.raises(ModelError, match=f"have {PARTS[name]}"):
        check_against(options("uno", tmp_path, tmp_path), config)


class Halved(DecoderModel):
    """A decoder as a plugin's family may have one."""

    def layer_end(self, layer, x, at, given=None):
        return super().layer_end(layer, x, at, given) * 0.5


def test_a_family_with_a_decoder_of_its_own_is_read_as_it_is_served(tmp_path, monkeypatch):
    monkeypatch.setattr(type(family_named("llama")), "decoder", Halved)
    target = Target.load(path := write_target(tmp_path / "target"), "cpu")
    prompt = IDS[0].tolist()
    request = toy_request("a", prompt, max_tokens=1, prompt_logprobs=0)
    served = run_requests(make_engine(path, dtype="float32").engine, [request]).outputs["a"].prompt_logprobs
    read = target.features(IDS[:1], ()).logits[0].log_softmax(-1)
    expected = [float(read[i, token]) for i, token in enumerate(prompt[1:])]
    assert [each.logprob for each in served if each is not None] == pytest.approx(expected, abs=1e-4)
    with pytest.raises(ModelError, match="family llama computes its own in another way"):
        make_head("uno", target)
