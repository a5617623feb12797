"""Routers of experts keep the model's dtype where other weights have 8 bits: rounded, they choose other experts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_cpu_int8_engine import each_kind, options, rounded, write_rounded

from specserve.models.projection import Router
from specserve_cpu import _native
from specserve_cpu.kernels import CpuKernels
from specserve_cpu.linear import quantise
from specserve_cpu.options import GROUP_SIZES
from specserve_workbench.testing.engines import make_engine, run
from specserve_workbench.testing.requests import toy_request
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.models.decoder import DecoderModel
    from specserve.protocols import KernelSet

FAMILIES = ("qwen3_moe", "mixtral", "olmoe", "granitemoe", "gpt_oss")


def model_of(path: Path, kind: str) -> DecoderModel:
    model: DecoderModel = make_engine(path, **options(kind)).engine.parts.runner.model  # type: ignore[attr-defined]
    return model


@each_kind
@pytest.mark.parametrize("family", FAMILIES)
def test_all_maps_but_routers_have_8_bits(tmp_path: Path, family: str, kind: str) -> None:
    model = model_of(write_checkpoint(tmp_path, architecture=family), kind)
    forms = {name: each.packed.form for name, each in model.projections.items()}  # type: ignore[attr-defined]
    kept = [name for name, form in forms.items() if form is None]
    assert kept == ["layers.0.router", "layers.1.router"]
    assert all(type(model.projections[name]) is Router for name in kept)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_routers_logits_are_those_without_8_bits(dtype: str) -> None:
    machine = _native.Machine(_native.instruction_sets()[0], 1)
    weight, bias = torch.randn(24, 96).to(getattr(torch, dtype)), torch.randn(24).to(getattr(torch, dtype))
    x = torch.randn(5, 96).to(weight.dtype)
    plain, eight = CpuKernels(machine, dtype), CpuKernels(machine, dtype, "int8", "int8")

    def logits(kernels: KernelSet) -> torch.Tensor:
        router = Router("router", weight, bias, kernels.linear)
        router.finalize(kernels)
        return router(x)

    assert torch.equal(logits(eight), logits(plain))
    assert torch.equal(logits(plain), plain.linear(x, weight, bias))
    assert not torch.equal(logits(eight), eight.linear(x, weight, bias))


def test_a_router_that_the_checkpoint_has_in_8_bits_is_read_as_it_is() -> None:
    machine = _native.Machine(_native.instruction_sets()[0], 1)
    kernels, weight, x = CpuKernels(machine, "float32"), quantise(machine, torch.randn(24, 96), 96), torch.randn(5, 96)
    router = Router("router", weight, None, kernels.linear)
    router.finalize(kernels)
    assert router.packed.form == (96, "auto")  # type: ignore[union-attr]
    torch.testing.assert_close(router(x), x @ (weight.integers * weight.scales).T)


def test_logits_are_those_of_transformers_with_all_but_routers_rounded(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    path = write_checkpoint(tmp_path / "model", architecture="qwen3_moe")
    # routers whose logits lie so near that rounding them changes the choice
    tensors = load_file(path / "model.safetensors")
    for layer in range(2):
        router = tensors[f"model.layers.{layer}.mlp.gate.weight"]
        router[1:] = router[0] + 0.02 * router[1:]
        assert not torch.equal(router, rounded(router, GROUP_SIZES["int8"] or 0))
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    copy = write_rounded(path, tmp_path / "rounded", partial(rounded, group_size=GROUP_SIZES["int8"] or 0))
    oracle = AutoModelForCausalLM.from_pretrained(copy, dtype=torch.float32, attn_implementation="eager").eval()
    prompt = tuple(range(7, 107))
    request = toy_request("a", prompt, max_tokens=1, prompt_logprobs=0)
    got = run(path, [request], **options("int8", dtype="float32")).outputs["a"].prompt_logprobs
    with torch.no_grad():
        expected = oracle(torch.tensor([prompt])).logits[0].log_softmax(-1)
    errors = [abs(entry.logprob - expected[i, prompt[i + 1]].item()) for i, entry in enumerate(got)]
    assert max(errors) < 2e-4
