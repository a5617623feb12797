"""Routers that compute in float32 whatever the model's dtype: GLM with experts."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from transformers.models.glm4_moe import Glm4MoeConfig
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeTopkRouter

from specserve.faults import BadAnswerError
from specserve.kernels.torch_kernels import TorchKernels
from specserve.models.loader import load_model
from specserve.models.projection import NO_BATCH, WideRouter
from specserve.models.read_config import read_config
from specserve.models.routing import choose_experts
from specserve_cpu import _native
from specserve_cpu.kernels import CpuKernels
from specserve_workbench.testing.toy import write_checkpoint

GATE = "model.layers.1.mlp.gate"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("model"), architecture="glm4_moe", n_routed_experts=24)


def packed(kernels, router):
    router.finalize(kernels)
    return router


@pytest.fixture(params=["torch", "cpu"])
def kernels(request):
    name = _native.instruction_sets()[-1]
    return TorchKernels() if request.param == "torch" else CpuKernels(_native.Machine(name, 2), "bfloat16")


def rows():
    return torch.randn(32, 128, generator=torch.Generator().manual_seed(1)).bfloat16()


def test_experts_and_weights_of_a_half_precision_model_are_those_of_transformers(path, kernels):
    tensors = load_file(path / "model.safetensors")
    mlp = load_model(path, kernels=kernels, dtype="bfloat16").layers[1].mlp
    theirs = Glm4MoeTopkRouter(Glm4MoeConfig.from_pretrained(path))
    theirs.weight.data, theirs.e_score_correction_bias = tensors[f"{GATE}.weight"], mlp.choice_bias
    assert torch.equal(mlp.choice_bias, tensors[f"{GATE}.e_score_correction_bias"])
    with torch.no_grad():
        their_logits, their_weights, their_experts = theirs(rows())
    logits = packed(kernels, mlp.router)(rows(), NO_BATCH)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, their_logits, rtol=1e-5, atol=1e-5)
    asked = logits, mlp.config, mlp.choice_bias
    experts, weights = kernels.choose_experts(*asked) or choose_experts(*asked)
    ours = torch.zeros(32, 24).scatter(1, experts, weights)
    torch.testing.assert_close(ours, torch.zeros(32, 24).scatter(1, their_experts, their_weights), rtol=1e-5, atol=1e-6)


def test_a_row_has_the_same_logits_in_any_company(path, kernels):
    router = packed(kernels, load_model(path, kernels=kernels, dtype="bfloat16").layers[1].mlp.router)
    x = rows()
    together = router(x, NO_BATCH)
    for row in range(0, 32, 5):
        alone = x.new_zeros(x.shape)
        alone[(row + 9) % 32] = x[row]
        assert torch.equal(router(alone, NO_BATCH)[(row + 9) % 32], together[row])


def test_what_an_adapter_adds_is_added_in_float32(kernels):
    weight = torch.randn(6, 128, generator=torch.Generator().manual_seed(2))
    router = packed(kernels, WideRouter("router", weight, None, kernels.linear))
    plain = router(rows(), NO_BATCH)
    router.add_delta(lambda x, out, *_: out.add_(torch.ones(6, dtype=x.dtype)))
    torch.testing.assert_close(router(rows(), NO_BATCH), plain + 1, rtol=0, atol=0)


def test_a_product_of_another_shape_is_refused(kernels):
    router = WideRouter("router", torch.ones(6, 128), None, kernels.linear)
    router.set_kernel(lambda x, weight, bias: x.new_zeros(1, 6), "a plugin")
    with pytest.raises(BadAnswerError, match="another shape"):
        router(rows(), NO_BATCH)


def test_layers_with_such_a_router_are_no_llamas(path):
    assert "routers in float32" in read_config(path).beyond_llama
