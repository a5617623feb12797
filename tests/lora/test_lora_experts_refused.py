"""Adapters of experts that cannot be served, each with its own words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from expert_adapters import write_model, write_per_expert, write_stacked
from safetensors.torch import load_file, save_file

from specserve.errors import ConfigError
from toy_adapters import lora_engine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Change = dict[str, Any]
STEM = "base_model.model.model.layers.0.mlp"
STACK = f"{STEM}.experts"
EXPERT = f"{STEM}.experts.3.up_proj"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six experts, 48 wide; the hidden size is 128."""
    return write_model(tmp_path_factory.mktemp("model"), "qwen3_moe")


def refusal(model: Path, adapter: Path, **settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        lora_engine(model, {"x": adapter}, settings=settings)
    return str(caught.value)


def rewrite(adapter: Path, change: Callable[[dict[str, Any]], object], **config: Any) -> Path:
    tensors = load_file(adapter / "adapter_model.safetensors")
    change(tensors)
    save_file(tensors, adapter / "adapter_model.safetensors")
    raw = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(raw | config))
    return adapter


def pair(stem: str, down: tuple[int, int], up: tuple[int, int]) -> dict[str, torch.Tensor]:
    return {f"{stem}.lora_A.weight": torch.ones(down), f"{stem}.lora_B.weight": torch.ones(up)}


STACKS: dict[str, tuple[Callable[[dict[str, Any]], object], Change, str]] = {
    "too few experts": (
        lambda t: t.update({f"{STACK}.lora_A.weight": torch.ones(20, 48)}),
        {},
        f"tensor {STACK}.lora_A.weight has shape [20, 48]; rank 4 of 6 experts and model say [24, 48]",
    ),
    "another rank": (
        lambda t: t.update({f"{STACK}.lora_B.weight": torch.ones(128, 18)}),
        {},
        f"tensor {STACK}.lora_B.weight has shape [128, 18]; rank 4 of 6 experts and model say [128, 24]",
    ),
    "another rank in the configuration": (lambda _: None, {"r": 3}, "rank 3 of 6 experts and model say [18, 128]"),
    "one parameter missing": (
        lambda t: [t.pop(f"{STACK}.lora_{x}.weight") for x in "AB"],
        {},
        f"tensor {STACK}.lora_A.weight is missing, though adapter_config.json targets its module",
    ),
    "a layer missing": (
        lambda t: [t.pop(name) for name in list(t) if ".layers.2." in name],
        {},
        "layers.2.mlp.experts.base_layer.lora_A.weight is missing",
    ),
    "one parameter not targeted": (
        lambda _: None,
        {"target_parameters": ["experts.down_proj"]},
        "4 tensors that cannot be served, the first is base_model.model.model.layers.0.mlp.experts.base_layer.lora_A.w",
    ),
    "exchanged, as before PEFT 0.19": (
        lambda t: t.update(pair(STACK, (24, 128), (48, 24))),
        {},
        "has shape [24, 128]; rank 4 of 6 experts and model say [24, 48]",
    ),
    "before PEFT 0.19": (
        lambda _: None,
        {"peft_version": "0.18.1"},
        "peft_version is 0.18.1, and tensors of experts' parameters, such as model.layers.0.mlp.experts.gate_up_proj",
    ),
    "unknown parameters": (
        lambda _: None,
        {"target_parameters": ["feed_forward.experts.gate_up_proj", "experts.up_proj"]},
        "target_parameters = ['feed_forward.experts.gate_up_proj', 'experts.up_proj'] matches no linear layer",
    ),
    "by two names": (
        lambda t: t.update(pair(EXPERT, (4, 128), (48, 4))),
        {"target_modules": ["up_proj"]},
        "changes layers.0.experts.3.gate_up_proj twice: as model.layers.0.mlp.experts.3.up_proj.weight and as "
        "model.layers.0.mlp.experts.gate_up_proj. Name each module once",
    ),
    "not finite": (
        lambda t: t[f"{STACK}.lora_B.weight"].__setitem__((3, 20), float("nan")),
        {},
        f"tensor {STACK}.lora_B.weight has values that are not finite",
    ),
    "plain layers missing": (
        lambda t: [t.clear(), t.update(x=torch.ones(1))],
        {"target_modules": ["gate_proj"], "target_parameters": []},
        "layers.1.mlp.gate_proj.lora_A.weight is missing",
    ),
}


@pytest.mark.parametrize(("change", "config", "said"), STACKS.values(), ids=STACKS)
def test_parameters_that_do_not_fit_are_refused(model, tmp_path, change, config, said):
    assert said in refusal(model, rewrite(write_stacked(tmp_path, model), change, **config))


MODULES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a missing expert": (
        lambda t: [t.pop(name) for name in list(t) if ".experts.3." in name],
        f"tensor {STEM}.experts.3.gate_proj.lora_A.weight is missing",
    ),
    "a missing map of an expert": (
        lambda t: [t.pop(f"{EXPERT}.lora_{x}.weight") for x in "AB"],
        f"tensor {EXPERT}.lora_A.weight is missing",
    ),
    "one expert too many": (
        lambda t: t.update({f"{STEM}.experts.6.up_proj.lora_{x}.weight": torch.ones(4, 4) for x in "AB"}),
        f"2 tensors that cannot be served, the first is {STEM}.experts.6.up_proj.lora_A.weight",
    ),
    "the router of other experts": (
        lambda t: t.update({f"{STEM}.gate.lora_B.weight": torch.ones(8, 4)}),
        f"tensor {STEM}.gate.lora_B.weight has shape [8, 4]; rank and model say [6, 4]",
    ),
    "no router in a layer": (
        lambda t: [t.pop(f"{STEM}.gate.lora_{x}.weight") for x in "AB"],
        f"tensor {STEM}.gate.lora_A.weight is missing",
    ),
}


@pytest.mark.parametrize(("change", "said"), MODULES.values(), ids=MODULES)
def test_modules_of_experts_that_do_not_fit_are_refused(model, tmp_path, change, said):
    assert said in refusal(model, rewrite(write_per_expert(tmp_path, model), change))


def test_a_file_without_any_targeted_module_is_refused(tmp_path):
    """Every layer has experts, and no linear map of that name."""
    model = write_model(tmp_path / "model", "olmoe")
    adapter = write_stacked(tmp_path / "adapter", model, target_modules=["gate_proj"], target_parameters=[])
    assert "has no tensors of the modules that adapter_config.json targets" in refusal(model, adapter)


def test_the_limit_of_ranks_is_for_one_expert(model, tmp_path):
    adapter = write_stacked(tmp_path, model, rank=9)
    assert "experts.base_layer has rank 9, and lora.max_rank allows 8" in refusal(model, adapter, max_rank=8)
    assert lora_engine(model, {"x": adapter}, settings={"max_rank": 9})


def test_the_limit_of_memory_counts_all_experts(model, tmp_path):
    adapter = write_stacked(tmp_path, model, rank=4, parameters=["gate_up_proj"])
    needed = 2 * 6 * 4 * (128 + 96) * 4  # layers, experts, rank, sizes, bytes
    said = f"needs {needed} bytes, and lora.max_memory allows {needed - 1} for all adapters"
    assert said in refusal(model, adapter, max_memory=str(needed - 1))
    assert lora_engine(model, {"x": adapter}, settings={"max_memory": str(needed)})
