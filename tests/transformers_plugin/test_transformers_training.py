"""Heads for models that transformers computes: training reads what transformers gives, and a served head drafts what
training foresaw."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from architectures import write_model
from foreseen_drafts import foreseen
from runs import options_of
from training_cases import LAYERS, TEXT, make_head, options, stream
from transformers import AutoModelForCausalLM

from specserve.errors import ModelError
from specserve_eagle.training.evaluate import step_logits
from specserve_eagle.training.export import export
from specserve_eagle.training.reopen import reopen
from specserve_eagle.training.run import train
from specserve_eagle.training.target import Target

CLASSES = {
    "Exaone4ForCausalLM": {"layer_types": ["sliding_attention", "full_attention"] * 4},
    "GPT2LMHeadModel": {"n_layer": LAYERS},
    "Glm4MoeLiteForCausalLM": {},
    "PhiForCausalLM": {},
    "Qwen2MoeForCausalLM": {"rope_parameters": {"rope_type": "default", "rope_theta": 5e4}, "rms_norm_eps": 1e-4},
}
"""Layers that are the engine's own; learned positions and layer norms; latent attention; a head with a bias; experts
by the class's own layers."""
BEHIND_NORM = ("eagle", "mtp")
WITHOUT_NORM = ("GPT2LMHeadModel", "PhiForCausalLM")
IDS = stream(40).view(2, 20)


@pytest.fixture(scope="module")
def path_of(tmp_path_factory):
    sizes = {"num_hidden_layers": LAYERS}
    return cache(lambda name: write_model(tmp_path_factory.mktemp("target"), name, **sizes, **CLASSES[name]))


@pytest.fixture(scope="module")
def target_of(path_of):
    return cache(lambda name: Target.load(path_of(name), "cpu"))


@pytest.mark.parametrize("name", CLASSES)
def test_what_is_read_of_a_model_is_what_transformers_gives(path_of, target_of, name):
    theirs = AutoModelForCausalLM.from_pretrained(path_of(name), dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        expected = theirs.eval()(IDS, output_hidden_states=True)
    ours = target_of(name).features(IDS, tuple(range(LAYERS)))
    for layer in range(LAYERS):
        torch.testing.assert_close(ours.hidden[layer], expected.hidden_states[layer], atol=1e-3, rtol=1e-4)
    if name not in WITHOUT_NORM:
        torch.testing.assert_close(ours.final, expected.hidden_states[-1], atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(ours.logits, expected.logits, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize(("name", "kind"), [
    ("Exaone4ForCausalLM", "eagle"), ("GPT2LMHeadModel", "eagle3"), ("Glm4MoeLiteForCausalLM", "eagle3"),
    ("PhiForCausalLM", "eagle3"), ("Qwen2MoeForCausalLM", "mtp"),
])  # fmt: skip
def test_a_served_head_drafts_what_training_foresees(target_of, tmp_path, name, kind):
    given = options_of("torch") | {"dtype": "float32", "max_model_len": 128}
    found = foreseen(kind, target_of(name), tmp_path, given)
    assert found.accepted == found.expected
    assert found.expected.accepted > 6


@pytest.mark.parametrize(("name", "kind"), [
    ("Exaone4ForCausalLM", "dflash"), ("GPT2LMHeadModel", "standalone"), ("PhiForCausalLM", "dspark"),
])  # fmt: skip
@torch.no_grad()
def test_a_written_head_is_read_back(target_of, tmp_path, name, kind):
    target = target_of(name)
    module = make_head(kind, target)
    export(module, target.files, tmp_path)
    features = target.features(IDS, tuple(range(LAYERS)))
    written = module.to(torch.bfloat16).float()
    both = (step_logits(each, target, features, IDS, 3) for each in (reopen(tmp_path, target), written))
    assert all(torch.equal(a, b) for a, b in zip(*both, strict=True))


SIZES = {
    "GPT2LMHeadModel": (96, 1e-5, 1e4),
    "PhiForCausalLM": (96, 1e-5, 1e4),
    "Qwen2MoeForCausalLM": (96, 1e-4, 5e4),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_heads_layers_have_the_sizes_of_the_models(target_of, name):
    config = target_of(name).config
    assert (config.intermediate_size, config.norm_eps, config.rope.rope_theta) == SIZES[name]
    assert (config.hidden_size, config.num_heads, config.num_layers) == (64, 4, LAYERS)


def test_a_run_trains_and_measures(path_of, tmp_path):
    (tmp_path / "a.py").write_text(TEXT * 40)
    data = (str(tmp_path / "*.py"),)
    assert train(options("eagle3", path_of("GPT2LMHeadModel"), tmp_path / "out", data=data)).num_drafts


@pytest.mark.parametrize("kind", BEHIND_NORM)
def test_a_head_that_reads_behind_a_layer_norm_is_refused_by_name(path_of, tmp_path, kind):
    (tmp_path / "a.py").write_text(TEXT * 40)
    data = (str(tmp_path / "*.py"),)
    with pytest.raises(ModelError, match=r"GPT2LMHeadModel: .* is no root-mean-square norm"):
        train(options(kind, path_of("GPT2LMHeadModel"), tmp_path / "out", data=data))


def test_no_adapter_is_trained_through_the_layers_of_another_library(path_of, tmp_path):
    """The text does not exist: it is not read."""
    with pytest.raises(ModelError, match=r"transformers computes those of GPT2LMHeadModel\. Train a head for it"):
        train(options("uno", path_of("GPT2LMHeadModel"), tmp_path / "out", data=(str(tmp_path / "none.txt"),)))
