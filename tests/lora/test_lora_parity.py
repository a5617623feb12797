"""Adapters that PEFT wrote, against PEFT: logits of its merged model. No code in common but the checkpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

from specserve.errors import ConfigError
from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.requests import toy_request
from specserve_workbench.testing.toy import write_checkpoint
from toy_adapters import lora_engine, under

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
PROMPT = tuple(range(3, 60))
FORMS: dict[str, dict[str, Any]] = {
    "one": {"target_modules": ["q_proj"]},
    "k": {"target_modules": ["k_proj"]},
    "v": {"target_modules": ["v_proj"]},
    "o": {"target_modules": ["o_proj"]},
    "gate": {"target_modules": ["gate_proj"]},
    "up": {"target_modules": ["up_proj"]},
    "down": {"target_modules": ["down_proj"]},
    "paths": {"target_modules": ["model.layers.1.self_attn.q_proj", "0.mlp.down_proj", "no_such_layer"]},
    "regex": {"target_modules": r".*\.(0\.self_attn\.[qk]_proj|1\.mlp\.(up|down)_proj)"},
    "all-linear": {"target_modules": "all-linear"},
    "excluded": {"target_modules": "all-linear", "exclude_modules": ["v_proj", "1.mlp.up_proj"]},
    "excluded by regex": {"target_modules": ["q_proj", "o_proj"], "exclude_modules": r".*\.0\..*"},
    "one layer": {"target_modules": ["q_proj", "up_proj"], "layers_to_transform": 1},
    "layers": {"target_modules": ["down_proj"], "layers_to_transform": [0], "layers_pattern": "layers"},
    "rslora": {"target_modules": "all-linear", "use_rslora": True, "r": 9},
    "ranks": {"target_modules": "all-linear", "rank_pattern": {"q_proj": 1, r"1\.mlp\..*": 17, "down_proj": 3}},
    "alphas": {
        "target_modules": "all-linear",
        "alpha_pattern": {"layers.0.self_attn.v_proj": 31, "^model.*up_proj": 2},
    },
    "both": {
        "target_modules": ["q_proj", "v_proj", "down_proj"],
        "rank_pattern": {"v_proj": 12},
        "alpha_pattern": {"v_proj": 5, "down_proj": 1},
        "use_rslora": True,
    },
    "wide": {"target_modules": "all-linear", "r": 256, "lora_alpha": 16},
}


def save_with_peft(model_path: Path, path: Path, form: dict[str, Any]) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    base = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    adapted = get_peft_model(base, LoraConfig(**{"r": 6, "lora_alpha": 10} | form))
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    adapted.save_pretrained(path)


@torch.inference_mode()
def merged_logits(model_path: Path, path: Path) -> torch.Tensor:
    """[prompt, vocab]."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32, attn_implementation="eager")
    merged = PeftModel.from_pretrained(base, path).merge_and_unload().eval()
    logits: torch.Tensor = merged(torch.tensor([PROMPT])).logits[0]
    return logits


def our_logits(model_path: Path, path: Path | None, *, native: bool = True) -> torch.Tensor:
    """[prompt, vocab], computed in chunks beside a request of the base model."""
    engine, store = lora_engine(
        model_path, {"x": path} if path else {}, max_num_batched_tokens=48, default_plugins=native
    )
    request = toy_request("r", PROMPT, max_tokens=1, prompt_logprobs=0)
    beside = toy_request("b", PROMPT[:7], max_tokens=9, ignore_eos=True)
    seen, forward = [], engine.runner.forward

    def watching(batch):
        output = forward(batch)
        at = [i for i, span in enumerate(batch.spans) if span.request.id == "r"]
        for i in at:
            begin = batch.scored_offsets[i]
            seen.append(output.logits[begin : begin + batch.spans[i].scored].clone())
        return output

    engine.runner.forward = watching
    run_requests(engine, under(store, [request, beside], ["x" if path else None, None]))
    return torch.cat(seen)


def assert_parity(model_path: Path, path: Path) -> torch.Tensor:
    """With native kernels and with torch's; returns the logits."""
    expected = merged_logits(model_path, path)
    for native in (False, True):
        got = our_logits(model_path, path, native=native)
        assert got.shape == expected.shape
        assert (got - expected).abs().max() < 1e-4
    return expected


@pytest.fixture(scope="module")
def base_logits(toy_model: Path) -> torch.Tensor:
    return our_logits(toy_model, None)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_logits_are_those_of_pefts_merged_model(toy_model, tmp_path, base_logits, form):
    save_with_peft(toy_model, tmp_path, form)
    assert (assert_parity(toy_model, tmp_path) - base_logits).abs().max() > 0.01


@pytest.mark.parametrize(
    "architecture", ["mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "granite", "olmo3", "lfm2"]
)
def test_logits_are_pefts_on_other_families(tmp_path, architecture):
    extra = {"sliding_window": 32} if architecture == "mistral" else {}
    model = write_checkpoint(tmp_path / "model", architecture=architecture, **extra)
    save_with_peft(model, tmp_path / "adapter", {"target_modules": "all-linear"})
    assert_parity(model, tmp_path / "adapter")


def test_a_tied_head_is_left_alone(tmp_path):
    model = write_checkpoint(tmp_path / "model", architecture="qwen3", tie_word_embeddings=True)
    save_with_peft(model, tmp_path / "adapter", {"target_modules": "all-linear"})
    assert_parity(model, tmp_path / "adapter")


def test_all_linear_may_stand_in_the_file(toy_model, tmp_path):
    """PEFT writes the modules that it means; other trainers write the word."""
    save_with_peft(toy_model, tmp_path, {"target_modules": "all-linear"})
    named = our_logits(toy_model, tmp_path)
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"target_modules": "all-linear"}))
    assert torch.equal(our_logits(toy_model, tmp_path), named)


def test_an_initialisation_that_changes_the_model_is_refused(toy_model, tmp_path):
    """PEFT takes what such an adapter began with out of the model when it loads it."""
    save_with_peft(toy_model, tmp_path, {"target_modules": ["q_proj"], "init_lora_weights": "olora"})
    with pytest.raises(ConfigError, match=r"init_lora_weights = olora cannot be served.*path_initial_model"):
        our_logits(toy_model, tmp_path)
