"""The blocks that draft within checkpoints of GLM with experts and of MiMo, against plain torch over transformers'
hidden states."""

from __future__ import annotations

import pytest
import torch
from block_chains import assert_acceptance_of_a_trained_block, assert_references, generate, hidden_states_of
from changed_files import change_tensors
from eagle_engines import drafter_of, eagle_engine
from nextn_blocks import COPIES, NAMES, Reference, as_qwen2, raw_of, write_target

from specserve_cpu.draft_head import FusedDraftPass

FAMILIES = ("glm4_moe", "mimo")
ATOL = {"glm4_moe": 5e-4, "mimo": 4e-5}
"""A target with experts moves further by rounding."""


@pytest.fixture(scope="module", params=FAMILIES)
def target(request, tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("model") / "target", request.param)


@pytest.fixture(scope="module")
def hidden_of(target, tmp_path_factory):
    if raw_of(target)["model_type"] == "mimo":
        return hidden_states_of(as_qwen2(write_target(tmp_path_factory.mktemp("model") / "qwen2", "mimo")))
    return hidden_states_of(target)


@pytest.mark.usefixtures("each_kernel_set")
def test_every_draft_is_the_chain_of_the_reference(target, hidden_of):
    assert_references(target, Reference(target), hidden_of, ATOL[raw_of(target)["model_type"]])


def test_a_block_of_plain_layers_is_one_native_call(tmp_path):
    engine = eagle_engine(*[write_target(tmp_path, "mimo")] * 2, default_plugins=True)
    assert isinstance(drafter_of(engine).passes, FusedDraftPass)


def test_as_many_tokens_of_a_trained_block_are_accepted_as_the_reference_says(tmp_path, target, hidden_of):
    def write(tensors):
        return write_target(tmp_path / "trained", raw_of(target)["model_type"], tensors)

    assert_acceptance_of_a_trained_block(target, Reference(target), hidden_of, write)


def test_a_block_without_an_embedding_and_a_head_has_the_targets(tmp_path):
    path = write_target(tmp_path / "target", "glm4_moe")
    recorder, _, tokens = generate(path)
    prefix = NAMES["glm4_moe"].prefix
    others, _, same = generate(change_tensors(path, **dict.fromkeys(f"{prefix}{name}.weight" for name in COPIES)))
    assert (others.drafts, same) == (recorder.drafts, tokens)


@pytest.mark.usefixtures("each_kernel_set")
def test_the_router_of_a_block_computes_in_float32_whatever_the_models_dtype(tmp_path):
    path = write_target(tmp_path / "target", "glm4_moe")
    drafter = drafter_of(eagle_engine(path, path, dtype="bfloat16"))
    router = drafter.model.head.decoder.layers[0].mlp.router
    x = torch.randn(8, router.in_features, generator=torch.Generator().manual_seed(1)).bfloat16()
    weight = Reference(path).tensor("mlp.gate.weight")
    assert not torch.equal(weight, weight.bfloat16().float())
    torch.testing.assert_close(router(x), x.float() @ weight.T, rtol=1e-5, atol=1e-5)
