"""config.json and generation_config.json: what is read, what is assumed, what is refused."""

from __future__ import annotations

import json

import pytest

from specserve.errors import ModelError
from specserve.models.config import GenerationDefaults
from specserve.models.read_config import parse_config, read_config
from specserve_workbench.testing.toy import DEFAULTS, write_checkpoint

WINDOW = {"sliding_window": 8, "num_hidden_layers": 3}


def config_of(architecture="LlamaForCausalLM", generation=None, **changes):
    raw = DEFAULTS | {"architectures": [architecture]} | changes
    return parse_config({k: v for k, v in raw.items() if v != "absent"}, generation or {}, where="config.json")


def test_sizes_come_from_the_file_and_unknown_keys_do_not_matter():
    config = config_of(some_future_key={"deep": [1]})
    assert (config.family, config.num_layers, config.num_kv_heads, config.head_dim) == ("llama", 2, 2, 32)


def test_absent_sizes_have_their_usual_meaning():
    config = config_of(num_key_value_heads="absent", head_dim="absent", num_attention_heads=2)
    assert (config.num_kv_heads, config.head_dim) == (2, 64)
    assert config_of("Qwen3ForCausalLM", head_dim="absent").head_dim == 128


@pytest.mark.parametrize(
    ("architecture", "changes", "qkv", "o", "mlp", "qk_norm"),
    [
        ("LlamaForCausalLM", {}, False, False, False, False),
        ("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}, True, True, True, False),
        ("MistralForCausalLM", {"attention_bias": True}, False, False, False, False),
        ("Qwen2ForCausalLM", {"attention_bias": False}, True, False, False, False),
        ("Qwen3ForCausalLM", {}, False, False, False, True),
        ("Qwen3ForCausalLM", {"attention_bias": True}, True, True, False, True),
    ],
)
def test_each_family_has_its_biases_and_norms(architecture, changes, qkv, o, mlp, qk_norm):
    config = config_of(architecture, **changes)
    assert (config.qkv_bias, config.o_bias, config.mlp_bias, config.qk_norm) == (qkv, o, mlp, qk_norm)


@pytest.mark.parametrize(
    ("architecture", "changes", "windows"),
    [
        ("LlamaForCausalLM", {}, (None, None, None)),
        ("MistralForCausalLM", {}, (8, 8, 8)),
        ("MistralForCausalLM", {"sliding_window": None}, (None, None, None)),
        ("MistralForCausalLM", {"sliding_window": "absent"}, (4096, 4096, 4096)),
        ("Qwen2ForCausalLM", {}, (None, None, None)),
        ("Qwen2ForCausalLM", {"use_sliding_window": True, "max_window_layers": 2}, (None, None, 8)),
        ("Qwen2ForCausalLM", {"use_sliding_window": True}, (None, None, None)),
        (
            "Qwen3ForCausalLM",
            {"use_sliding_window": True, "layer_types": ["full_attention", "sliding_attention", "full_attention"]},
            (None, 8, None),
        ),
    ],
)
def test_each_family_has_its_own_rule_for_windows(architecture, changes, windows):
    assert config_of(architecture, **(WINDOW | changes)).sliding_windows == windows


def test_sampling_defaults_come_from_the_generation_file():
    generation = {"temperature": 0.6, "top_k": 20, "do_sample": True, "transformers_version": "5"}
    assert config_of(generation=generation).generation == GenerationDefaults(temperature=0.6, top_k=20, do_sample=True)


@pytest.mark.parametrize(
    ("changes", "dtype"),
    [({}, "float32"), ({"torch_dtype": "bfloat16"}, "bfloat16"), ({"dtype": "torch.float16"}, "float16")],
)
def test_dtype_is_read_in_both_spellings(changes, dtype):
    assert config_of(**changes).dtype == dtype


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "'GPT2LMHeadModel' is not supported. Supported: LlamaForCausalLM"),
        ({"architectures": None}, "not supported"),
        ({"hidden_size": "absent", "head_dim": 32}, "hidden_size"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"vocab_size": 0}, "vocab_size must be at least 1; got 0"),
        ({"num_attention_heads": 5}, r"num_attention_heads \(5\) must be a multiple"),
        ({"num_attention_heads": 0, "num_key_value_heads": 1}, "num_attention_heads must be at least 1"),
        ({"head_dim": 33}, "must be even.*got 33"),
        ({"head_dim": 33, "partial_rotary_factor": 0.98}, "must be even.*got 33"),
        ({"quantization_config": "gptq"}, 'quantization_config: must be an object; got "gptq"'),
        ({"hidden_act": "gelu"}, "hidden_act must be silu; got 'gelu'"),
        ({"torch_dtype": "int8"}, "dtype must be one of float32, bfloat16, float16; got 'int8'"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(changes, message):
    with pytest.raises(ModelError, match=message) as error:
        config_of(**changes)
    assert "config.json" in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sliding_window": -1}, "sliding_window must be a positive number"),
        ({"layer_types": ["full_attention"]}, "layer_types must name"),
        ({"layer_types": ["chunked_attention"] * 3}, "layer_types must name"),
    ],
)
def test_a_window_that_is_not_understood_is_refused(changes, message):
    with pytest.raises(ModelError, match=message):
        config_of("Qwen3ForCausalLM", **(WINDOW | {"use_sliding_window": True} | changes))


def test_a_directory_is_read_as_a_whole(tmp_path):
    config = read_config(write_checkpoint(tmp_path, architecture="qwen3", dtype="bfloat16"))
    assert (config.family, config.dtype, config.num_layers) == ("qwen3", "bfloat16", 2)


def test_a_directory_without_the_file_is_named(tmp_path):
    (tmp_path / "tokenizer.json").touch()
    with pytest.raises(ModelError, match=r"has no config\.json"):
        read_config(tmp_path)


@pytest.mark.parametrize("text", ["{", "\xff", json.dumps([1])])
def test_a_file_that_is_no_json_object_is_named(tmp_path, text):
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelError, match=r"config\.json"):
        read_config(tmp_path)
