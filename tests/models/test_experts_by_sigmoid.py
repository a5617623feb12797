"""Experts that are chosen by sigmoids, after a bias of each expert's own: LFM2 with experts."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
import torch
from changed_files import change_json
from transformers import AutoModelForCausalLM
from transformers.models.lfm2_moe.modeling_lfm2_moe import Lfm2MoeTopKRouter

from specserve.errors import ModelError
from specserve.kernels.torch_kernels import TorchKernels
from specserve.models.experts_config import ExpertsConfig
from specserve.models.loader import load_model
from specserve.models.read_config import read_config
from specserve.models.routing import choose_experts
from specserve_cpu import _native
from specserve_cpu.kernels import CpuKernels
from specserve_workbench.testing.toy import write_checkpoint

COUNT, CHOSEN = 24, 5
SIGMOID = ExpertsConfig(count=COUNT, chosen=CHOSEN, inner_size=1, layers=(True,), scores="sigmoid", added_to_sum=1e-6)


def kernel_sets(dtype: str):
    return [TorchKernels(), *(CpuKernels(_native.Machine(name, 2), dtype) for name in _native.instruction_sets())]


def chosen_by(kernels, *asked):
    return kernels.choose_experts(*asked) or choose_experts(*asked)


def numbers(rows: int = 32, seed: int = 5, dtype: str = "float32"):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, COUNT, generator=generator)
    logits[0] -= 12  # so small scores that what is added to their sum counts
    return logits.to(getattr(torch, dtype)), 0.2 * torch.randn(COUNT, generator=generator)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("renormalised", "scale"), [(True, 1.0), (False, 1.0), (True, 2.5)])
def test_experts_and_weights_are_those_of_transformers(dtype, biased, renormalised, scale):
    theirs = Lfm2MoeTopKRouter(
        SimpleNamespace(
            num_experts_per_tok=CHOSEN,
            num_experts=COUNT,
            norm_topk_prob=renormalised,
            hidden_size=COUNT,
            routed_scaling_factor=scale,
            use_expert_bias=biased,
        )
    )
    theirs.weight.data = torch.eye(COUNT, dtype=getattr(torch, dtype))  # its logits are what it is given
    logits, bias = numbers(dtype=dtype)
    bias = bias if biased else None
    with torch.no_grad():
        _, their_weights, their_experts = theirs(logits, bias)
    config = msgspec.structs.replace(SIGMOID, renormalised=renormalised, weight_scale=scale, choice_bias=biased)
    scores = logits.sigmoid() + (bias if biased else 0)
    for kernels in kernel_sets(dtype):
        experts, weights = chosen_by(kernels, logits, config, bias)
        assert (experts.dtype, weights.dtype) == (torch.int64, torch.float32)
        for row in range(len(logits)):
            if len(scores[row].topk(CHOSEN + 1).values.unique()) <= CHOSEN:
                continue  # torch promises no order of equal ones
            assert experts[row].tolist() == their_experts[row].tolist()
            torch.testing.assert_close(weights[row], their_weights[row].float(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_bias_moves_the_choice_and_is_no_part_of_a_weight(dtype):
    logits, bias = torch.zeros(32, COUNT, dtype=getattr(torch, dtype)), torch.zeros(COUNT)
    bias[[7, 20]] = torch.tensor([0.5, 1.0])
    for kernels in kernel_sets(dtype):
        experts, weights = chosen_by(kernels, logits, SIGMOID, bias)
        assert experts[3].tolist() == [20, 7, 0, 1, 2], "of equal ones the lower"
        assert weights[3].tolist() == [0.5] * CHOSEN


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_row_chooses_alone_as_it_does_in_company(dtype):
    logits, bias = numbers(dtype=dtype, seed=2)
    config = msgspec.structs.replace(SIGMOID, renormalised=True, weight_scale=1.7)
    for kernels in kernel_sets(dtype):
        experts, weights = chosen_by(kernels, logits, config, bias)
        for row in range(32):
            at = (row + 5) % 32 if kernels.row_tile else 0
            other = torch.zeros(32 if kernels.row_tile else 1, COUNT, dtype=logits.dtype)
            other[at] = logits[row]
            own_experts, own_weights = chosen_by(kernels, other, config, bias)
            assert own_experts[at].tolist() == experts[row].tolist()
            assert own_weights[at].tolist() == weights[row].tolist()


def test_logits_that_are_no_numbers_choose_experts_that_there_are():
    logits, bias = numbers()
    logits[0], logits[1, 4:], logits[2] = float("nan"), float("nan"), float("-inf")
    for kernels in kernel_sets("float32"):
        experts, _ = chosen_by(kernels, logits, SIGMOID, bias)
        assert all(len({*row}) == CHOSEN and {*row} <= {*range(COUNT)} for row in experts.tolist())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_biases_stay_in_float32(tmp_path, dtype):
    """As transformers keeps them, whatever the model's dtype."""
    path = write_checkpoint(tmp_path, architecture="lfm2_moe")
    theirs = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype)).model.layers[1].feed_forward
    ours = load_model(path, kernels=TorchKernels(), dtype=dtype).layers[1].mlp
    assert ours.choice_bias.dtype == theirs.expert_bias.dtype == torch.float32
    assert torch.equal(ours.choice_bias, theirs.expert_bias)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_dense_layers": -1}, "num_dense_layers must be a number of layers; got -1"),
        ({"num_dense_layers": "2"}, "num_dense_layers must be a number of layers; got '2'"),
        ({"routed_scaling_factor": 0}, "routed_scaling_factor must be a positive number; got 0"),
        ({"moe_intermediate_size": 0}, "moe_intermediate_size must be a whole number, at least 1; got 0"),
        ({"layer_types": None}, "layer_types must name conv or full_attention for each of the 2 layers; got None"),
        ({"num_experts_per_tok": 7}, "num_experts_per_tok must be at most the number.*6; got 7"),
    ],
    ids=str,
)
def test_what_a_file_cannot_say_is_refused_by_name(tmp_path, changes, message):
    path = write_checkpoint(tmp_path, architecture="lfm2_moe")
    change_json(path / "config.json", **changes)
    with pytest.raises(ModelError, match=message):
        read_config(path)


def test_transformers_needs_layer_types_too(tmp_path):
    path = write_checkpoint(tmp_path, architecture="lfm2_moe")
    change_json(path / "config.json", layer_types=None)
    with pytest.raises(TypeError):
        AutoModelForCausalLM.from_pretrained(path)
