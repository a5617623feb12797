"""An expert that every token passes: what it adds, how files have it, and what is refused by name."""

from __future__ import annotations

import json

import pytest
import torch
from changed_files import change_json
from naive_forward import forward, load
from safetensors.torch import load_file, save_file

from specserve.errors import ModelError
from specserve.kernels.torch_kernels import TorchKernels
from specserve.models.loader import load_model
from specserve.models.mlp import weighted_sum
from specserve.models.projection import NO_BATCH
from specserve.models.read_config import read_config
from specserve.models.routing import choose_experts
from specserve_cpu import _native
from specserve_cpu.kernels import CpuKernels
from specserve_workbench.testing.toy import write_checkpoint

GATED, UNGATED, QWEN35 = "qwen2_moe", "granitemoeshared", "qwen3_5_moe_text"
PROMPT = [(11 * i + 3) % 300 for i in range(50)]
TILE = 32


def rewrite(path, edit):
    file = path / "model.safetensors"
    tensors = load_file(file)
    save_file(edit(tensors), file, metadata={"format": "pt"})


def one_by_one(tensors):
    """From [E, 2 I, H] and [E, H, I], as the published files of Qwen3.5 have them, to a tensor for each matrix."""
    found = dict(tensors)
    for name in [name for name in tensors if ".experts." in name]:
        block, _, stack = name.rpartition(".")
        for expert, matrix in enumerate(found.pop(name)):
            parts = matrix.chunk(2) if stack == "gate_up_proj" else (matrix,)
            for part, rows in zip(stack.removesuffix("_proj").split("_"), parts, strict=True):
                found[f"{block}.{expert}.{part}_proj.weight"] = rows.clone()
    return found


@pytest.mark.parametrize("family", [GATED, UNGATED])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_its_output_is_added_to_the_rounded_sum_of_the_others(tmp_path, family, dtype):
    kernels = TorchKernels()
    model = load_model(write_checkpoint(tmp_path, architecture=family, dtype=dtype), kernels=kernels)
    mlp, x = model.layers[1].mlp, torch.randn(TILE, model.hidden_size).to(model.dtype)
    experts, weights = choose_experts(mlp.router(x), mlp.config)
    outs = torch.stack([
        torch.stack([mlp.experts[expert](x, NO_BATCH)[row] for row, expert in enumerate(slot)])
        for slot in experts.T.tolist()
    ])  # fmt: skip
    shared = mlp.shared.mlp(x, NO_BATCH)
    if family == GATED:
        shared = torch.stack([gate.sigmoid() * row for gate, row in zip(mlp.shared.gate(x), shared, strict=True)])
    assert (mlp.shared.gate is not None) == (family == GATED)
    assert torch.equal(mlp(x, NO_BATCH), weighted_sum(outs, weights) + shared)


@pytest.mark.parametrize("family", [GATED, UNGATED, QWEN35])
@pytest.mark.parametrize("kernels", ["torch", "float32", "bfloat16"])
def test_a_rows_bits_depend_on_no_other_row(tmp_path, family, kernels):
    made = (
        TorchKernels()
        if kernels == "torch"
        else CpuKernels(_native.Machine(_native.instruction_sets()[-1], 2), kernels)
    )
    dtype = "float32" if kernels == "torch" else kernels
    mlp = load_model(write_checkpoint(tmp_path, architecture=family, dtype=dtype), kernels=made).layers[1].mlp
    for projection in (mlp.router, mlp.shared.mlp.gate_up_proj, mlp.shared.mlp.down_proj, mlp.shared.gate):
        if projection is not None:
            projection.finalize(made)
    x = torch.randn(TILE, 128).to(getattr(torch, dtype))
    whole = mlp(x, NO_BATCH)
    for row in (0, 9, 31):
        others = torch.randn(TILE, 128).to(x.dtype) if made.row_tile else x.new_empty((1, 128))
        others[0] = x[row]
        assert torch.equal(mlp(others, NO_BATCH)[0], whole[row])


def test_experts_are_read_from_stacks_and_one_by_one(tmp_path):
    path = write_checkpoint(tmp_path, architecture=QWEN35)
    assert "model.layers.1.mlp.experts.gate_up_proj" in load_file(path / "model.safetensors")
    expected = forward(load(path), PROMPT)
    rewrite(path, one_by_one)
    assert "model.layers.1.mlp.experts.5.up_proj.weight" in load_file(path / "model.safetensors")
    assert torch.equal(forward(load(path), PROMPT), expected)


def test_a_stack_of_more_experts_than_the_file_says_is_refused(tmp_path):
    path = write_checkpoint(tmp_path, architecture=QWEN35)
    change_json(path / "config.json", num_experts=5)
    with pytest.raises(ModelError, match=r"mlp\.experts\.\w+_proj has 6 matrices, but config\.json says 5"):
        load(path)


def test_the_text_part_of_a_model_that_reads_images_is_served(tmp_path):
    path = write_checkpoint(tmp_path, architecture=QWEN35)
    expected = forward(load(path), PROMPT)
    text = json.loads((path / "config.json").read_text())
    del text["architectures"]
    whole = {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "text_config": text}
    (path / "config.json").write_text(json.dumps(whole | {"tie_word_embeddings": False, "vision_config": {}}))
    rewrite(path, lambda tensors: {"model.visual.merger.weight": torch.ones(3)} | {
        name.replace("model.", "model.language_model.", 1): tensor for name, tensor in tensors.items()
    })  # fmt: skip
    assert torch.equal(forward(load(path), PROMPT), expected)


@pytest.mark.parametrize("family", [GATED, UNGATED, QWEN35])
def test_kernel_sets_that_do_not_know_it_decline_it_by_name(tmp_path, family):
    config = read_config(write_checkpoint(tmp_path, architecture=family))
    assert "shared expert" in config.beyond_llama
    assert "shared expert" not in CpuKernels.fuses


def test_a_width_of_zero_is_none_for_granite(tmp_path):
    config = read_config(write_checkpoint(tmp_path, architecture=UNGATED, shared_intermediate_size=0))
    assert config.experts.shared_size is None
    assert "shared expert" not in config.beyond_llama


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        (GATED, {"shared_expert_intermediate_size": 0}, "shared_expert_intermediate_size must be a whole .*got 0"),
        (UNGATED, {"shared_intermediate_size": -1}, "shared_intermediate_size must be a whole number.*got -1"),
        (QWEN35, {"shared_expert_intermediate_size": "x"}, "shared_expert_intermediate_size must be .*got 'x'"),
        (QWEN35, {"moe_intermediate_size": 0}, "moe_intermediate_size must be a whole number, at least 1; got 0"),
        (QWEN35, {"norm_topk_prob": False}, "norm_topk_prob must be True; got False"),
        (QWEN35, {"mlp_only_layers": [1]}, r"mlp_only_layers must be \[\]; got \[1\]"),
        (QWEN35, {"decoder_sparse_step": 2}, "decoder_sparse_step must be 1; got 2"),
        (QWEN35, {"attn_output_gate": False}, "attn_output_gate must be True; got False"),
    ],
    ids=str,
)
def test_what_a_file_cannot_say_is_refused_by_name(tmp_path, family, changes, message):
    path = write_checkpoint(tmp_path, architecture=family)
    change_json(path / "config.json", **changes)
    with pytest.raises(ModelError, match=message):
        read_config(path)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        (
            GATED,
            {"shared_expert_intermediate_size": 57},
            r"shared_expert\.gate_proj\.weight has shape \[56, 128\], but",
        ),
        (UNGATED, {"shared_intermediate_size": 57}, r"shared_mlp\.input_linear\.weight has 112 rows, but .* says 114"),
        (UNGATED, {"shared_intermediate_size": 0}, r"shared_mlp.* would change what the model computes"),
    ],
    ids=str,
)
def test_a_shared_expert_of_another_width_than_the_file_says_is_named(tmp_path, family, changes, message):
    path = write_checkpoint(tmp_path, architecture=family)
    change_json(path / "config.json", **changes)
    with pytest.raises(ModelError, match=message):
        load(path)


def test_a_shared_expert_that_the_file_lacks_is_named(tmp_path):
    path = write_checkpoint(tmp_path, architecture=GATED)
    gate = "model.layers.1.mlp.shared_expert_gate.weight"
    rewrite(path, lambda tensors: {name: tensor for name, tensor in tensors.items() if name != gate})
    with pytest.raises(ModelError, match=r"tensor model\.layers\.1\.mlp\.shared_expert_gate\.weight is missing"):
        load(path)
