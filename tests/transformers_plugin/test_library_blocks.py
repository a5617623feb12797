"""Blocks that draft within checkpoints whose targets transformers computes, against plain torch and transformers'
layers: Ernie 4.5, and multi-head latent attention in GLM-4.7-Flash and DeepSeek-V3."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from architectures import write_model
from block_chains import assert_acceptance_of_a_trained_block, assert_references
from changed_files import change_json, change_tensors
from eagle_engines import eagle_engine
from library_blocks import FORMS, GLM, Reference, write_target

import drafted_requests
from covering import covering
from specserve.errors import ModelError
from specserve_workbench.testing.engines import accepted, run, run_requests

BESIDE = {"cpu": ("transformers", "cpu"), "torch": ("transformers",)}
"""By kernel set."""


@pytest.fixture(scope="module")
def target_of(tmp_path_factory):
    return cache(lambda name: write_target(tmp_path_factory.mktemp("target"), FORMS[name]))


@pytest.mark.parametrize("kernels", BESIDE)
@pytest.mark.parametrize("name", FORMS)
def test_every_draft_is_the_chain_of_the_reference(target_of, name, kernels):
    reference = Reference(FORMS[name], target_of(name))
    assert_references(target_of(name), reference, reference.hidden, 5e-4, beside=BESIDE[kernels])


@pytest.mark.parametrize("name", FORMS)
def test_as_many_tokens_of_a_trained_block_are_accepted_as_the_reference_says(tmp_path, target_of, name):
    reference = Reference(FORMS[name], target_of(name))
    assert_acceptance_of_a_trained_block(
        target_of(name), reference, reference.hidden,
        lambda tensors: write_target(tmp_path, FORMS[name], tensors), BESIDE["cpu"],
    )  # fmt: skip


@covering(
    ("name",), ("kernels", "dtype"), name=FORMS, kernels=BESIDE, dtype=["float32", "bfloat16"], at_once=[1, 8],
    settings=[{}, {"topk": 3}, {"weights": "int8"}], beside=[(), ("ngram",), ("ngram", "lora")],
)  # fmt: skip
def test_the_block_changes_nothing(target_of, name, kernels, dtype, at_once, settings, beside):
    if kernels == "torch" and "weights" in settings:
        pytest.skip("weights of 8 bits are the native kernels'")
    target, requests = target_of(name), drafted_requests.mixed_requests(8)
    options = {"dtype": dtype, "max_num_seqs": at_once, "max_num_batched_tokens": 100}
    plain = run(target, requests, plugins=BESIDE[kernels], **options)
    engine = eagle_engine(target, target, settings=settings, beside=(*BESIDE[kernels], *beside), **options)
    drafted = run_requests(engine, requests)
    assert drafted.decided() == plain.decided()
    good, count = accepted(drafted)
    assert not drafted.metrics.drafter_faults
    assert 0 < good < count


def refused(target, match):
    with pytest.raises(ModelError, match=match):
        eagle_engine(target, target, beside=BESIDE["cpu"])


def test_what_an_ernie_block_cannot_be_is_refused_by_name(tmp_path):
    form = FORMS["ernie"]
    path = write_target(tmp_path, form)
    change_json(path / "config.json", num_nextn_predict_layers=2)
    refused(path, "an MTP head of 2 layers is not supported")
    change_json(path / "config.json", num_nextn_predict_layers=1)
    change_tensors(path, **{f"{form.prefix}self_attn.o_proj.weight": None})
    refused(path, r"model\.mtp_block\.0\.self_attn\.o_proj\.weight")
    change_tensors(path, **{form.fc: torch.ones(64, 64)})
    refused(path, r"model\.mtp_linear_proj\.0\.weight .*64")


@pytest.mark.parametrize(("changes", "match"), [
    ({"kv_lora_rank": "16"}, "kv_lora_rank must be a whole number of at least 1; got '16'"),
    ({"q_lora_rank": 0}, "q_lora_rank must be null or a whole number of at least 1; got 0"),
    ({"v_head_dim": 25}, "even qk_rope_head_dim and values of at most .* got 8, 25 and 24"),
    ({"qk_rope_head_dim": 7}, "even qk_rope_head_dim .* got 7, 16 and 23"),
    ({"rope_interleave": False}, "rope_interleave = False is not supported .* True is"),
    ({"attention_bias": True}, "attention_bias = True is not supported .* False is"),
    ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "a rotation of type yarn .* only the default one.* n-gram"),
    ({"n_group": 2}, "n_group = 2 .experts in groups. is not supported .* n-gram"),
], ids=str)  # fmt: skip
def test_latent_attention_that_is_not_computed_is_refused_by_name(tmp_path, target_of, changes, match):
    target = target_of("glm with narrow values")
    copy = tmp_path / "head"
    copy.mkdir()
    for file in target.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    change_json(copy / "config.json", **changes)
    with pytest.raises(ModelError, match=match):
        eagle_engine(target, copy, beside=BESIDE["cpu"])


def test_experts_in_groups_are_refused_by_name_in_every_block(tmp_path):
    """A GLM with such experts is served by transformers alone."""
    path = write_model(tmp_path, "Glm4MoeForCausalLM", kv_lora_rank=None)
    change_tensors(path, **{f"{GLM}eh_proj.weight": torch.ones(64, 128)})
    with pytest.raises(ModelError, match=r"n_group = 2 .experts in groups. is not supported .* n-gram"):
        eagle_engine(path, path, beside=BESIDE["cpu"], plugin_options={"transformers": {"architectures": "all"}})


def test_nobody_is_warned_of_a_block_that_drafts(tmp_path, caplog):
    path = write_target(tmp_path, FORMS["glm"])
    run(path, [], plugins=BESIDE["cpu"])
    assert "not used" not in caplog.text
    change_tensors(path, **{"model.layers.9.more.weight": torch.ones(2, 2)})
    run(path, [], plugins=BESIDE["cpu"])
    assert "model.layers.9.more.weight: not used by Glm4MoeLiteForCausalLM" in caplog.text


def test_a_missing_part_of_latent_attention_is_refused_by_name(tmp_path):
    path = write_target(tmp_path, FORMS["glm"])
    change_tensors(path, **{f"{GLM}self_attn.kv_a_layernorm.weight": None})
    refused(path, r"model\.layers\.2\.self_attn\.kv_a_layernorm\.weight")
