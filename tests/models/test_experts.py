"""Mixtures of experts: which are chosen, how their outputs are added, and how checkpoints keep them."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.models.granitemoe.modeling_granitemoe import GraniteMoeTopKRouter
from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter
from transformers.models.olmoe.modeling_olmoe import OlmoeTopKRouter
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter

from specserve.batch.lora_plan import LoraPlan, Segment
from specserve.engine.measure_costs import CostProbe, TimedPass
from specserve.errors import ModelError
from specserve.kernels.torch_kernels import TorchKernels
from specserve.models import mlp
from specserve.models.experts_config import ExpertsConfig
from specserve.models.loader import load_model
from specserve.models.mlp import of_rows, rows_by_expert, weighted_sum
from specserve.models.projection import BatchRows
from specserve.models.read_config import read_config
from specserve.models.routing import choose_experts
from specserve_cpu import _native
from specserve_cpu.kernels import CpuKernels
from specserve_workbench.testing.engines import make_engine
from specserve_workbench.testing.toy import write_checkpoint

COUNT = 24
ROUTERS = {
    "qwen3_moe": (Qwen3MoeTopKRouter, {"norm_topk_prob": False}),
    "qwen3_moe, renormalised": (Qwen3MoeTopKRouter, {"norm_topk_prob": True}),
    "olmoe": (OlmoeTopKRouter, {}),
    "mixtral": (MixtralTopKRouter, {}),
    "granitemoe": (GraniteMoeTopKRouter, {}),
}


def config_of(family: str, tmp_path, **more) -> ExpertsConfig:
    return read_config(write_checkpoint(tmp_path / "model", architecture=family, **more)).experts


def kernel_sets(dtype: str):
    return [TorchKernels(), *(CpuKernels(_native.Machine(name, 2), dtype) for name in _native.instruction_sets())]


def chosen_by(kernels, logits, config):
    return kernels.choose_experts(logits, config) or choose_experts(logits, config)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ROUTERS)
def test_experts_and_weights_are_those_of_transformers(tmp_path, name, dtype):
    made, settings = ROUTERS[name]
    numbers = {"num_experts": COUNT, "num_local_experts": COUNT, "num_experts_per_tok": 5}
    theirs = made(SimpleNamespace(hidden_size=COUNT, **({"norm_topk_prob": False} | settings | numbers)))
    theirs.weight.data = torch.eye(COUNT, dtype=getattr(torch, dtype))  # its logits are what it is given
    config = config_of(name.partition(",")[0], tmp_path, **(settings | numbers))
    logits = torch.randn(32, COUNT, generator=torch.Generator().manual_seed(5)).to(getattr(torch, dtype))
    with torch.no_grad():
        _, their_weights, their_experts = theirs(logits)
    for kernels in kernel_sets(dtype):
        experts, weights = chosen_by(kernels, logits, config)
        assert weights.dtype == torch.float32
        is_rounded = torch.equal(weights, weights.to(logits.dtype).float())
        assert is_rounded == (config.rounded or dtype == "float32")
        for row in range(32):
            top = logits[row].topk(6).values
            if len(top.unique()) == 6:  # torch promises no order of equal ones
                assert experts[row].tolist() == their_experts[row].tolist()
            ulp = 1e-6 if dtype == "float32" else 2**-7
            torch.testing.assert_close(weights[row], their_weights[row].float(), atol=1e-6, rtol=ulp)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_of_equal_experts_the_lower_is_chosen(dtype):
    config = ExpertsConfig(count=40, chosen=4, inner_size=1, layers=(True,))
    logits = torch.zeros(32, 40, dtype=getattr(torch, dtype))
    logits[1, [7, 30, 31]] = 1.0
    logits[2, [39, 3, 20, 21, 22]] = 2.0
    for kernels in kernel_sets(dtype):
        experts, weights = chosen_by(kernels, logits, config)
        assert experts[:4].tolist() == [[0, 1, 2, 3], [7, 30, 31, 0], [3, 20, 21, 22], [0, 1, 2, 3]]
        assert weights[0].tolist() == pytest.approx([1 / 40] * 4, rel=1e-2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_row_chooses_alone_as_it_does_in_company(dtype):
    config = ExpertsConfig(count=37, chosen=6, inner_size=1, layers=(True,), renormalised=True)
    logits = (3 * torch.randn(32, 37, generator=torch.Generator().manual_seed(2))).to(getattr(torch, dtype))
    for kernels in kernel_sets(dtype):
        experts, weights = chosen_by(kernels, logits, config)
        for row in range(32):
            at = (row + 5) % 32 if kernels.row_tile else 0
            other = torch.zeros(32 if kernels.row_tile else 1, 37, dtype=logits.dtype)
            other[at] = logits[row]
            own_experts, own_weights = chosen_by(kernels, other, config)
            assert own_experts[at].tolist() == experts[row].tolist()
            assert own_weights[at].tolist() == weights[row].tolist()


def test_logits_that_are_no_numbers_choose_experts_that_there_are():
    """A broken row ends its own request; it must not reach beyond the experts."""
    config = ExpertsConfig(count=9, chosen=3, inner_size=1, layers=(True,))
    logits = torch.full((32, 9), float("nan"))
    logits[1, 4:] = torch.tensor([1.0, float("inf"), 2.0, float("-inf"), 3.0])
    logits[2] = float("-inf")
    for kernels in kernel_sets("float32"):
        experts, _ = chosen_by(kernels, logits, config)
        assert all(len({*row}) == 3 and {*row} <= {*range(9)} for row in experts.tolist())


def test_what_experts_give_is_added_in_order_in_float32_and_rounded_once():
    outs = torch.randn(3, 8, 50, generator=torch.Generator().manual_seed(1)).bfloat16()
    weights = torch.rand(8, 3, generator=torch.Generator().manual_seed(2))
    expected = [
        sum(float(torch.tensor(float(outs[slot, row, i])) * weights[row, slot]) for slot in range(3))
        for row in range(8)
        for i in range(50)
    ]
    got = weighted_sum(outs, weights).flatten()
    torch.testing.assert_close(got, torch.tensor(expected).bfloat16(), atol=0, rtol=2**-8)
    first, second = torch.tensor([[[1e8]], [[1.0]], [[-1e8]]]), torch.tensor([[1.0, 1.0, 1.0]])
    assert weighted_sum(first, second).item() == 0.0, "in order, 1 is lost in 1e8"
    assert weighted_sum(first[[0, 2, 1]], second).item() == 1.0


def test_what_experts_add_up_to_is_combined_once(tmp_path):
    """Where several processes have a part of every expert."""
    model = load_model(write_checkpoint(tmp_path, architecture="gpt_oss"), kernels=TorchKernels())
    x, at, seen = torch.randn(32, 128), BatchRows(slice(0, 32), None), []
    whole = model.layers[0].mlp

    def doubled(total):
        seen.append(total.clone())
        return 2 * total

    assert torch.equal(replace(whole, combine=doubled)(x, at), 2 * whole(x, at))
    assert [total.tolist() for total in seen] == [whole(x, at).tolist()]


def test_rows_are_found_by_expert():
    assert rows_by_expert([[2, 0], [0, 3], [2, 3]]) == {0: {0: 1, 1: 0}, 2: {0: 0, 2: 0}, 3: {1: 1, 2: 1}}


def test_adapters_follow_their_rows_to_an_expert():
    a, b = object(), object()
    plan = LoraPlan([Segment(0, 40, None), Segment(40, 44, a), Segment(44, 46, None), Segment(46, 60, b)], 4)
    at = of_rows(BatchRows(slice(32, 64), plan), [0, 9, 11, 12, 13, 14, 27])
    assert at.rows == slice(0, 7)
    assert [tuple(each) for each in at.lora.adapted(at.rows)] == [(1, 3, a), (5, 7, b)]


def change(path, **values):
    file = path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        (
            "qwen3_moe",
            {"num_experts_per_tok": 7},
            "num_experts_per_tok must be at most the number.*6; got 7",
        ),
        ("qwen3_moe", {"num_experts_per_tok": 0}, "num_experts_per_tok must be a whole number, at least 1; got 0"),
        ("qwen3_moe", {"num_experts": True}, "num_experts must be a whole number, at least 1; got True"),
        ("qwen3_moe", {"num_local_experts": 5}, "num_experts and num_local_experts must be the same; got"),
        ("qwen3_moe", {"decoder_sparse_step": 0}, "decoder_sparse_step must be a whole number, at least 1; got 0"),
        ("qwen3_moe", {"mlp_only_layers": "0"}, "mlp_only_layers must be a list of layers; got '0'"),
        ("qwen3_moe", {"moe_intermediate_size": None}, "moe_intermediate_size must be a whole number.*got None"),
        ("olmoe", {"clip_qkv": 8.0}, "clip_qkv = 8.0 is not implemented"),
        ("mixtral", {"num_local_experts": "8"}, "num_local_experts must be a whole number, at least 1; got '8'"),
    ],
    ids=str,
)
def test_what_a_file_cannot_say_of_experts_is_refused_by_name(tmp_path, family, changes, message):
    path = write_checkpoint(tmp_path / "model", architecture=family)
    change(path, **changes)
    with pytest.raises(ModelError, match=message):
        read_config(path)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("qwen3_moe", {"num_experts": 7}, r"mlp\.gate\.weight has shape \[6, 128\], but config.json says \[7, 128\]"),
        ("qwen3_moe", {"moe_intermediate_size": 32}, r"has shape \[48, 128\], but config.json says \[32, 128\]"),
        ("qwen3_moe", {"mlp_only_layers": [0]}, r"layers\.0\.mlp\.gate_proj\.weight is missing"),
        ("granitemoe", {"num_local_experts": 4}, r"_linear.weight has 5 matrices, but config.json says 4"),
        ("granitemoe", {"intermediate_size": 160}, r"has shape"),
        ("mixtral", {"num_local_experts": 5}, r"layers\.0\.mlp\.(experts\.4\.\w+_proj|gate)\.weight"),
    ],
    ids=str,
)
def test_experts_that_the_weights_do_not_have_are_named(tmp_path, family, changes, message):
    path = write_checkpoint(tmp_path / "model", architecture=family)
    change(path, **changes)
    with pytest.raises(ModelError, match=message):
        make_engine(path)


def test_missing_and_superfluous_experts_are_named(tmp_path):
    path = write_checkpoint(tmp_path, architecture="qwen3_moe")
    tensors = load_file(path / "model.safetensors")
    expert = "model.layers.1.mlp.experts.3.up_proj.weight"
    more = tensors | {expert.replace(".3.", ".6."): tensors[expert].clone()}
    save_file(more, path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"layers\.1\.mlp\.experts\.6\.up_proj\.weight would change what the model"):
        load_model(path, kernels=TorchKernels())
    del tensors[expert]
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"tensor model\.layers\.1\.mlp\.experts\.3\.up_proj\.weight is missing"):
        load_model(path, kernels=TorchKernels())


def test_a_stack_of_matrices_is_read_as_single_experts(tmp_path):
    path = write_checkpoint(tmp_path, architecture="granitemoe")
    stacks = load_file(path / "model.safetensors")
    mlp = load_model(path, kernels=TorchKernels()).layers[1].mlp
    for expert in range(5):
        both = mlp.experts[expert].gate_up_proj.weight
        assert torch.equal(both, stacks["model.layers.1.block_sparse_moe.input_linear.weight"][expert])
        down = mlp.experts[expert].down_proj.weight
        assert torch.equal(down, stacks["model.layers.1.block_sparse_moe.output_linear.weight"][expert])


def test_a_stack_that_is_a_matrix_is_refused(tmp_path):
    path = write_checkpoint(tmp_path, architecture="granitemoe")
    tensors = load_file(path / "model.safetensors")
    name = "model.layers.1.block_sparse_moe.output_linear.weight"
    tensors[name] = tensors[name][:, 0].contiguous()
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="has shape"):
        load_model(path, kernels=TorchKernels())


def test_timed_passes_read_as_many_experts_as_rows_of_text(tmp_path, monkeypatch):
    """The planner's table would else say that draft tokens cost nothing in a model with experts."""
    path = write_checkpoint(tmp_path, architecture="qwen3_moe", num_experts=32, num_experts_per_tok=2)
    parts = make_engine(path, kv_memory="1M").engine.parts
    probe = CostProbe(parts.runner, parts.builder, 64, 512, lambda: None)
    for rows in (4, 16):
        touched = []
        for turn in range(3):
            seen = set()

            def recording(*asked, seen=seen, rows=rows):
                experts, weights = choose_experts(*asked)
                seen |= {*experts[:rows].flatten().tolist()}
                return experts, weights

            monkeypatch.setattr(mlp, "choose_experts", recording)
            parts.runner.forward(TimedPass(32, rows).batch(probe, turn))
            touched.append(seen)
        expected = 32 * (1 - (1 - 2 / 32) ** rows)
        assert min(map(len, touched)) > 0.6 * expected
        assert touched[0] != touched[1]
