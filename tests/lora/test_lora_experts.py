"""Adapters of experts and routers: of parameters against PEFT's merged model, of modules against a checkpoint that has
them merged by hand, under the names of both."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from expert_adapters import BLOCKS, MODELS, merged_checkpoint, renamed, write_model, write_per_expert, write_stacked
from safetensors.torch import load_file, save_file
from test_lora_parity import assert_parity, our_logits, save_with_peft

from specserve.models.families import BUILT_IN
from specserve.models.family import ModelFamily, StoredAs
from specserve.protocols.part import WholeMap
from specserve_lora.modules import modules_of
from specserve_workbench.testing.toy import write_checkpoint
from toy_adapters import lora_engine

if TYPE_CHECKING:
    from pathlib import Path

IGNORED = (DeprecationWarning, FutureWarning, RuntimeWarning, UserWarning)
pytestmark = pytest.mark.filterwarnings(*(f"ignore::{kind.__name__}" for kind in IGNORED))
BOTH = ["experts.gate_up_proj", "experts.down_proj"]
ROUTERS = ["gate.weight", "router.weight"]
ROUTERS_OF = {"gemma4_text": ["router.proj.weight"]}
REFUSED_BY_PEFT = dict.fromkeys(("lfm2_moe", "qwen3_5_moe_text", "qwen2_moe", "glm4_moe"), "gate")
"""A module that it makes no parameter of."""
NAMED_MODULES = ["q_proj", "gate_proj", "up_proj", "down_proj", "gate", "w1", "w2", "w3"]
FORMS: dict[str, dict[str, Any]] = {
    "attention": {"target_modules": ["q_proj", "o_proj"]},
    "parameters": {"target_modules": ["v_proj"], "target_parameters": BOTH},
    "no modules": {"target_modules": [], "target_parameters": [*BOTH, "gate.weight"]},
    "inputs": {"target_modules": [], "target_parameters": ["gate_up_proj"]},
    "outputs": {"target_modules": [], "target_parameters": ["mlp.experts.down_proj"]},
    "by layer": {
        "target_modules": [],
        "target_parameters": ["model.layers.0.mlp.experts.down_proj", "2.mlp.experts.gate_up_proj", *ROUTERS],
    },
    "linear maps as parameters": {
        "target_modules": ["k_proj"],
        "target_parameters": ["q_proj.weight", "1.mlp.up_proj.weight"],
    },
    "patterns": {
        "target_modules": ["v_proj"],
        "target_parameters": [*BOTH, "gate.weight"],
        "rank_pattern": {"experts.gate_up_proj": 5, r".*\.down_proj": 2, "gate.weight": 1, "gate": 3},
        "alpha_pattern": {"0.mlp.experts.down_proj": 31, "gate_up_proj": 7},
        "use_rslora": True,
    },
    "excluded modules are not parameters": {
        "target_modules": ["q_proj", "v_proj"],
        "target_parameters": BOTH,
        "exclude_modules": r".*(v_proj|experts.*)",
    },
    "wide": {"target_modules": [], "target_parameters": BOTH, "r": 100},
    "modules that PEFT makes parameters": {"target_modules": NAMED_MODULES},
    "all-linear": {"target_modules": "all-linear"},
}  # fmt: skip


@pytest.fixture(scope="module", params=MODELS)
def architecture(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def model(architecture: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp(architecture), architecture)


@pytest.fixture(scope="module")
def qwen3_moe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("qwen3_moe"), "qwen3_moe")


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_logits_are_those_of_pefts_merged_model(qwen3_moe, tmp_path, form):
    save_with_peft(qwen3_moe, tmp_path, form)
    assert (assert_parity(qwen3_moe, tmp_path) - our_logits(qwen3_moe, None)).abs().max() > 0.01


@pytest.mark.parametrize("form", [
    {"target_modules": ["q_proj", "v_proj"]},
    {"target_modules": ["k_proj"], "target_parameters": [*BOTH, *ROUTERS]},
    {"target_modules": NAMED_MODULES},
    {"target_modules": "all-linear"},
], ids=["attention", "parameters", "modules that PEFT makes parameters", "all-linear"])  # fmt: skip
def test_logits_are_pefts_on_every_family(model, architecture, tmp_path, form):
    """Of those modules that a family's class does not have, or has as parameters, PEFT trains none or all."""
    if isinstance(names := form["target_modules"], list):
        form = form | {"target_modules": [name for name in names if name != REFUSED_BY_PEFT.get(architecture)]}
    if "target_parameters" in form:
        form = form | {"target_parameters": [*BOTH, *ROUTERS_OF.get(architecture, ROUTERS)]}
    save_with_peft(model, tmp_path, form)
    assert (assert_parity(model, tmp_path) - our_logits(model, None)).abs().max() > 0.01


@pytest.mark.parametrize("family", ["qwen3_moe", "qwen2_moe", "olmoe", "mixtral"])
def test_modules_of_experts_are_merged_into_the_checkpoint(family, tmp_path):
    """As transformers 4 trains them; Granite's and gpt-oss' experts were never linear maps."""
    model = write_model(tmp_path / "model", family)
    adapter = write_per_expert(tmp_path / "adapter", model)
    expected = our_logits(merged_checkpoint(tmp_path / "merged", model, adapter), None)
    assert (our_logits(model, None) - expected).abs().max() > 0.1
    for native in (False, True):
        assert (our_logits(model, adapter, native=native) - expected).abs().max() < 1e-4


@pytest.mark.parametrize(("family", "modules"), [
    ("qwen2_moe", ["shared_expert_gate", "shared_expert.up_proj"]),
    ("qwen3_5_moe_text", ["shared_expert.gate_proj", "shared_expert.down_proj", "in_proj_qkv"]),
    ("granitemoeshared", ["shared_mlp.input_linear", "output_linear"]),
])  # fmt: skip
def test_adapters_of_a_shared_expert_are_pefts(family, modules, tmp_path):
    model = write_model(tmp_path / "model", family)
    save_with_peft(model, tmp_path / "adapter", {"target_modules": modules})
    assert (assert_parity(model, tmp_path / "adapter") - our_logits(model, None)).abs().max() > 0.01


@pytest.mark.parametrize("family", ["olmoe", "mixtral"])
def test_peft_turns_modules_of_experts_into_what_we_serve(family, tmp_path):
    model = write_model(tmp_path / "model", family)
    assert_parity(model, write_per_expert(tmp_path / "adapter", model))


@pytest.mark.parametrize("modules", [[], None])
def test_parameters_need_no_modules(qwen3_moe, tmp_path, modules):
    """PEFT writes either for none."""
    named = write_stacked(tmp_path / "named", qwen3_moe, target_modules=["no_such_module"])
    adapter = write_stacked(tmp_path / "adapter", qwen3_moe, target_modules=modules)
    assert torch.equal(our_logits(qwen3_moe, adapter), our_logits(qwen3_moe, named))


def test_granites_own_stacks_are_parameters(tmp_path):
    """As transformers 4 has them, with the router as a linear map."""
    model = write_model(tmp_path / "model", "granitemoe")
    adapter = write_stacked(tmp_path / "adapter", model, target_modules=["layer"],
                            target_parameters=["input_linear.weight", "output_linear.weight"])  # fmt: skip
    tensors = renamed(
        load_file(adapter / "adapter_model.safetensors"),
        {"experts.base_layer": "input_linear", "experts": "output_linear"},
    )
    for layer in (0, 1):
        stem = f"base_model.model.model.layers.{layer}.block_sparse_moe.router.layer"
        tensors |= {f"{stem}.lora_A.weight": torch.randn(4, 128) / 10, f"{stem}.lora_B.weight": torch.randn(5, 4)}
    save_file(tensors, adapter / "adapter_model.safetensors")
    expected = our_logits(merged_checkpoint(tmp_path / "merged", model, adapter), None)
    for native in (False, True):
        assert (our_logits(model, adapter, native=native) - expected).abs().max() < 1e-4


@pytest.mark.parametrize("targets", [["qkv_proj", "gate_up_proj"], "all-linear"], ids=str)
def test_the_fused_maps_of_a_checkpoint_are_modules_too(tmp_path, targets):
    model = write_checkpoint(tmp_path / "model", architecture="phi3")
    save_with_peft(model, tmp_path / "adapter", {"target_modules": targets})
    assert (assert_parity(model, tmp_path / "adapter") - our_logits(model, None)).abs().max() > 0.01


def test_modules_of_experts_that_the_file_lacks_were_not_trained(model, tmp_path):
    """As transformers 5 without PEFT's conversion saves it: the words reach linear maps only."""
    adapter = write_per_expert(tmp_path / "adapter", model)
    file, config = adapter / "adapter_model.safetensors", adapter / "adapter_config.json"
    tensors = {n: t for n, t in load_file(file).items() if ".experts." not in n and ".gate.lora" not in n}
    save_file(tensors, file)
    without = our_logits(model, adapter)
    raw = json.loads(config.read_text())
    config.write_text(json.dumps(raw | {"exclude_modules": r".*(\.experts\..*|\.gate)"}))
    assert torch.equal(our_logits(model, adapter), without)
    assert (our_logits(model, None) - without).abs().max() > 0.01


def test_memory_counts_every_expert(model, tmp_path):
    adapter = write_stacked(tmp_path, model, rank=3)
    _, store = lora_engine(model, {"x": adapter}, dtype="bfloat16")
    values = sum(tensor.numel() for tensor in load_file(adapter / "adapter_model.safetensors").values())
    assert store.num_bytes() == 2 * values
    (loaded,) = store.loaded.values()
    assert loaded.rank == 3, "an expert's"


def test_every_family_with_experts_is_compared_with_peft():
    """What its class calls them, and in which order a parameter has gates and ups, is not known otherwise."""
    assert {family.name for family in BUILT_IN if family.experts.__func__ is not ModelFamily.experts} == {*MODELS}


def projections_of_a_layer(rows_of_gate: int, rows_of_up: int) -> dict[str, Any]:
    """One layer with two experts, four wide; the checkpoint has gates and ups in one stack, from these rows on."""
    stack, parts = "model.layers.0.mlp.experts.gate_up", {"gate_proj": slice(0, 4), "up_proj": slice(4, 8)}
    found: dict[str, Any] = {"layers.0.router": WholeMap(16, {"gate": slice(0, 2)})}
    for expert in range(2):
        stored = {
            "gate_proj": StoredAs(stack, rows_of_gate, 4, of_stack=expert),
            "up_proj": StoredAs(stack, rows_of_up, 4, of_stack=expert),
        }
        found[f"layers.0.experts.{expert}.gate_up_proj"] = WholeMap(16, parts, stored=stored)
    return {name: SimpleNamespace(name=name, whole=whole) for name, whole in found.items()}


@pytest.mark.parametrize(("rows", "served"), [((0, 4), True), ((0, 1), False), ((4, 0), False)])
def test_parameters_whose_rows_lie_otherwise_than_here_are_not_offered(rows, served):
    offered = modules_of(projections_of_a_layer(*rows)).parameters
    assert ("model.layers.0.mlp.experts.gate_up_proj" in offered) == served
    assert ("model.layers.0.mlp.experts.gate_up.weight" in offered) == served
    assert "model.layers.0.mlp.experts.1.up_proj.weight" in offered


def test_blocks_of_the_test_are_those_of_transformers():
    from transformers import AutoModelForCausalLM, GraniteMoeConfig

    tiny = GraniteMoeConfig(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=8
    )
    names = [name for name, _ in AutoModelForCausalLM.from_config(tiny).named_modules()]
    assert f"model.layers.0.{BLOCKS['granitemoe']}.experts" in names
