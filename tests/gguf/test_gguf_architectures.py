"""A model converted to GGUF is the model: the same configuration, and every tensor bit by bit."""

from __future__ import annotations

import msgspec
import pytest
import torch
from conversion import convert

from specserve.models.arrange import arrange
from specserve.models.checkpoint import Checkpoint
from specserve.models.families import BUILT_IN, family_named
from specserve.models.locate import locate_model
from specserve.models.open_weights import open_weights
from specserve.models.quantised import dense
from specserve.models.read_config import read_config
from specserve.models.tensor_names import expected_shapes
from specserve_gguf.source import Gguf
from specserve_workbench.testing.toy import write_checkpoint

YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 512,
}
TIED = {"tie_word_embeddings": True}
CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
SHARED = {
    "num_hidden_layers": 5,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"],
    "num_kv_shared_layers": 2,
}
EXPERTS = {"enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 16}
HALF_OF_HEADS = {
    "full_attention": {"rope_type": "proportional", "rope_theta": 5e5, "partial_rotary_factor": 0.5},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}
CASES = {
    "llama": {},
    "llama-biases-tied": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    "llama-linear": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "mistral": {"sliding_window": 16},
    "mixtral": {"num_experts_per_tok": 2},
    "qwen2": {"rope_theta": 1e6},
    "qwen2-yarn": {"rope_scaling": YARN},
    "qwen3": {"head_dim": 64, "tie_word_embeddings": True},
    "qwen3_moe": {"mlp_only_layers": []},
    "gemma2": {"num_hidden_layers": 4, **TIED, **CAPS},
    "gemma3_text": {"tie_word_embeddings": True, "num_hidden_layers": 6},
    "phi3": {"sliding_window": 16},
    "granite": {"tie_word_embeddings": True},
    "granitemoe": {"num_experts_per_tok": 2, "tie_word_embeddings": True},
    "qwen2_moe": {"mlp_only_layers": [], "norm_topk_prob": False},
    "granitemoeshared": {"num_experts_per_tok": 2, "tie_word_embeddings": True},
    "smollm3": {"num_hidden_layers": 4, "no_rope_layers": None, "sliding_window": None},
    "olmo2": {},
    "olmoe": {},
    "gpt_oss": {"num_hidden_layers": 4},
    "lfm2": {"num_hidden_layers": 3, "full_attn_idxs": [1], **TIED},
    "lfm2-biases": {"conv_bias": True, "conv_L_cache": 7, "block_auto_adjust_ff_dim": False},
    "lfm2_moe": {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], **TIED},
    "lfm2_moe-without-bias": {"use_expert_bias": False, "num_dense_layers": 0, **TIED},
    "qwen3_5_text": {"num_hidden_layers": 4},
    "qwen3_5_text-heads-alike": {"linear_num_value_heads": 2, "layer_types": ["full_attention", "linear_attention"]},
    "qwen3_5_text-biases-tied": {"attention_bias": True, "head_dim": 64, **TIED},
    "qwen3_5_moe_text": {"num_hidden_layers": 4, "linear_num_value_heads": 6, "linear_value_head_dim": 16},
    "gemma4_text": {"num_hidden_layers": 6, "layer_types": None, **TIED},
    "gemma4_text-shared": {**SHARED, "use_double_wide_mlp": True, "final_logit_softcapping": 30.0, **TIED},
    "gemma4_text-alike": {**SHARED, **EXPERTS, "attention_k_eq_v": True, "num_global_key_value_heads": 1, **TIED},
    "gemma4_text-plain": {"hidden_size_per_layer_input": 0, "rope_parameters": HALF_OF_HEADS, **TIED},
    "glm4_moe": {"first_k_dense_replace": 1},
    "glm4_moe-other": {
        "first_k_dense_replace": 0,
        "n_shared_experts": 2,
        "use_qk_norm": True,
        "attention_bias": False,
        "norm_topk_prob": False,
        "routed_scaling_factor": 2.5,
        "n_group": 1,
        "topk_group": 1,
        "partial_rotary_factor": 1.0,
    },
    "ministral3": {"rope_parameters": YARN | {"rope_theta": 10_000.0, "llama_4_scaling_beta": 0.5}},
}
UNSAID = {
    "gemma2": {"layer_types": None, "query_pre_attn_scalar": 32},
    "gemma3_text": {"layer_types": None, "query_pre_attn_scalar": 32, "rope_theta": 1e6},
    "gpt_oss": {"attention_bias": True},
}
"""Files do not say it: it is the same in all models of the family."""
EXTRA = {"ministral3": {"attention.temperature_scale": 0.5}}
NOT_IN_FILES = ("unknown_fields", "generation", "dtype", "own")
"""What differs without a consequence: the dtype that a file is served in is bfloat16."""


def tensors_of(path, formats=None):
    """The configuration, and every tensor that the engine reads, by its name."""
    config = read_config(path)
    source = open_weights(path, None, formats) if formats else open_weights(path)
    checkpoint = Checkpoint(source)
    arrange(checkpoint, family_named(config.family, BUILT_IN).stored_as(config))
    checkpoint.check(expected_shapes(config))
    return config, {name: dense(checkpoint.take(name)).float() for name in expected_shapes(config)}


@pytest.mark.parametrize("case", CASES)
def test_a_converted_model_has_the_configuration_and_the_tensors_that_it_had(tmp_path, monkeypatch, caplog, case):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    family = case.partition("-")[0]
    original = write_checkpoint(tmp_path / "model", architecture=family, **UNSAID.get(family, {}) | CASES[case])
    made = locate_model(str(convert(original, tmp_path / "model.gguf", extra=EXTRA.get(family))))
    wanted, got = tensors_of(original), tensors_of(made, [Gguf()])
    assert same(wanted[0]) == same(got[0])
    assert "not used" not in caplog.text
    assert wanted[1].keys() == got[1].keys()
    for name, numbers in wanted[1].items():
        if name.endswith("A_log"):  # files have -exp of it, which is rounded
            torch.testing.assert_close(got[1][name], numbers, rtol=0, atol=1.2e-7, msg=name)
            continue
        added = got[0].norm_offset if "norm" in name else 0.0  # what is multiplied: less one, it was rounded
        assert torch.equal(got[1][name] + added, numbers + added), name


def same(config):
    return {key: value for key, value in msgspec.structs.asdict(config).items() if key not in NOT_IN_FILES}
