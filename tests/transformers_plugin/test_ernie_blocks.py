"""The block that drafts within a checkpoint of Ernie 4.5, whose target transformers computes, against plain torch."""

from __future__ import annotations

import pytest
import torch
from block_chains import assert_acceptance_of_a_trained_block, assert_references
from changed_files import change_json, change_tensors
from eagle_engines import eagle_engine
from ernie_blocks import BLOCK, FC, Reference, write_target

import drafted_requests
from covering import covering
from specserve.errors import ModelError
from specserve_workbench.testing.engines import accepted, run, run_requests

BESIDE = {"cpu": ("transformers", "cpu"), "torch": ("transformers",)}
"""By kernel set."""


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


@pytest.mark.parametrize("kernels", BESIDE)
def test_every_draft_is_the_chain_of_the_reference(target, kernels):
    reference = Reference(target)
    assert_references(target, reference, reference.hidden, 5e-4, beside=BESIDE[kernels])


def test_as_many_tokens_of_a_trained_block_are_accepted_as_the_reference_says(tmp_path, target):
    reference = Reference(target)
    assert_acceptance_of_a_trained_block(
        target, reference, reference.hidden, lambda tensors: write_target(tmp_path, tensors), BESIDE["cpu"]
    )


@covering(("kernels", "dtype"), kernels=BESIDE, dtype=["float32", "bfloat16"], at_once=[1, 8], topk=[1, 3])
def test_the_block_changes_nothing(target, kernels, dtype, at_once, topk):
    requests, options = drafted_requests.mixed_requests(8), {"dtype": dtype, "max_num_seqs": at_once}
    plain = run(target, requests, plugins=BESIDE[kernels], **options)
    engine = eagle_engine(target, target, settings={"topk": topk}, beside=BESIDE[kernels], **options)
    drafted = run_requests(engine, requests)
    assert drafted.decided() == plain.decided()
    good, count = accepted(drafted)
    assert 0 < good < count


def test_a_block_of_several_layers_and_a_missing_tensor_are_refused_by_name(tmp_path):
    path = write_target(tmp_path)
    change_json(path / "config.json", num_nextn_predict_layers=2)
    with pytest.raises(ModelError, match="an MTP head of 2 layers is not supported"):
        eagle_engine(path, path, beside=BESIDE["cpu"])
    change_json(path / "config.json", num_nextn_predict_layers=1)
    change_tensors(path, **{f"{BLOCK}self_attn.o_proj.weight": None})
    with pytest.raises(ModelError, match=r"model\.mtp_block\.0\.self_attn\.o_proj\.weight"):
        eagle_engine(path, path, beside=BESIDE["cpu"])
    change_tensors(path, **{FC: torch.ones(64, 64)})
    with pytest.raises(ModelError, match=r"model\.mtp_linear_proj\.0\.weight .*64"):
        eagle_engine(path, path, beside=BESIDE["cpu"])
