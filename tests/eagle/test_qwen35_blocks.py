"""The block that drafts within a Qwen3.5 checkpoint, dense or with experts, against plain torch over transformers'
hidden states."""

from __future__ import annotations

import pytest
from block_chains import assert_acceptance_of_a_trained_block, assert_references, generate, hidden_states_of
from qwen35_blocks import (
    Reference,
    raw_of,
    with_stacked_experts,
    write_reading_target,
    write_saved_target,
    write_target,
)

FAMILIES = ("qwen3_5_text", "qwen3_5_moe_text")


@pytest.fixture(scope="module", params=FAMILIES)
def target(request, tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("model") / "target", architecture=request.param)


@pytest.fixture(scope="module")
def hidden_of(target):
    return hidden_states_of(target)


@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize("verifies", [False, True])
def test_every_draft_is_the_chain_of_the_reference(target, hidden_of, verifies):
    reference = Reference(target)
    atol = 5e-4 if "experts" in "".join(reference.weights) else 4e-5  # a target with experts moves further by rounding
    assert_references(target, reference, hidden_of, atol, verifies=verifies)


def test_a_block_that_is_added_to_what_transformers_saved_drafts(tmp_path):
    path = write_saved_target(tmp_path / "saved")
    assert_references(path, Reference(path), hidden_states_of(path))


def test_the_text_part_of_a_target_that_reads_images_has_the_same_block(tmp_path, target, caplog):
    recorder, _, tokens = generate(target)
    reading = write_reading_target(tmp_path / "reading", target)
    others, _, same = generate(reading)
    assert (others.drafts, same) == (recorder.drafts, tokens)
    assert "image input is not. Tensors that are not read: 1 of visual" in caplog.text
    assert "mtp" not in caplog.text


def test_experts_of_the_block_may_be_stacked(tmp_path):
    path = write_target(tmp_path / "target", architecture=FAMILIES[1])
    recorder, _, tokens = generate(path)
    others, _, same = generate(with_stacked_experts(path))
    assert (others.drafts, same) == (recorder.drafts, tokens)


def test_as_many_tokens_of_a_trained_block_are_accepted_as_the_reference_says(tmp_path, target, hidden_of):
    def write(tensors):
        return write_target(tmp_path / "trained", tensors, architecture=raw_of(target)["model_type"])

    assert_acceptance_of_a_trained_block(target, Reference(target), hidden_of, write)
