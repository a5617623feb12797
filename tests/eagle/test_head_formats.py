"""Every public format of a draft head gives the same canonical tensors and the numbers that its config.json has."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from toy_heads import FORMATS, LAYERS, ONE, SAFETENSORS, D, H, V, random_head, toy_target, write_head

from specserve.models.safetensors_header import INDEX
from specserve_eagle.checkpoints import draft_ids, kind_of, open_head, read_head_config
from specserve_workbench.testing.toy import write_checkpoint

EAGLE3_FORMATS = [name for name, form in FORMATS.items() if form.kind == "eagle3"]


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_holds_the_same_head(tmp_path, form):
    head = random_head(FORMATS[form].kind)
    path = write_head(tmp_path, form, head)
    config = read_head_config(path, toy_target())
    checkpoint = open_head(path, config)
    assert config.kind == kind_of(path) == FORMATS[form].kind
    assert set(head) == checkpoint.canonical_names
    assert all(torch.equal(checkpoint.take(name), tensor) for name, tensor in head.items())


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gives_the_layers_numbers(tmp_path, form):
    config = read_head_config(write_head(tmp_path, form), toy_target())
    eagle3 = FORMATS[form].kind == "eagle3"
    assert (config.hidden_size, config.intermediate_size, config.num_layers, config.vocab_size) == (H, 48, 1, V)
    assert (config.num_heads, config.num_kv_heads, config.head_dim, config.rotary_dim) == (4, 2, 8, 8)
    assert (config.draft_vocab_size, config.target_hidden_size) == (D if eagle3 else V, H)
    assert config.hidden_layers == ((2, 4, 5) if eagle3 else (LAYERS,))
    assert config.fc_bias == (FORMATS[form].kind == "eagle")
    assert config.feeds_back_norm == (FORMATS[form].kind == "mtp")


def test_only_mimo_puts_the_hidden_state_first(tmp_path):
    configs = {form: read_head_config(write_head(tmp_path / form, form), toy_target()) for form in FORMATS}
    assert [form for form, config in configs.items() if not config.embedding_first] == ["mimo"]


def test_the_speculators_format_keeps_the_dtype_outside_of_the_layer(tmp_path):
    config = read_head_config(write_head(tmp_path, "speculators-eagle3", torch_dtype="bfloat16"), toy_target())
    assert config.dtype == "bfloat16"


def test_only_a_config_that_says_so_has_its_norm_before_the_residual(tmp_path):
    configs = {form: read_head_config(write_head(tmp_path / form, form), toy_target()) for form in EAGLE3_FORMATS}
    assert [form for form, config in configs.items() if config.norm_before_residual] == ["speculators-eagle3"]


def test_the_rotation_is_the_one_that_config_json_names(tmp_path):
    scaling = {"rope_type": "linear", "factor": 4.0}
    rope = read_head_config(write_head(tmp_path, "specforge", rope_scaling=scaling, rope_theta=5e5), toy_target()).rope
    assert (rope.rope_type, rope.factor, rope.rope_theta) == ("linear", 4.0, 5e5)


def test_a_head_may_have_its_own_embedding_and_output_head(tmp_path):
    for form in ("specforge", "eagle", "deepseek-beside", "nextn"):
        head = random_head(FORMATS[form].kind, own_tables=True)
        path = write_head(tmp_path / form, form, head)
        checkpoint = open_head(path, read_head_config(path, toy_target()))
        assert checkpoint.has("embed_tokens")
        assert torch.equal(checkpoint.take("lm_head"), head["lm_head"])


def test_a_head_without_embedding_and_output_head_uses_the_targets(tmp_path):
    path = write_head(tmp_path, "eagle")
    checkpoint = open_head(path, read_head_config(path, toy_target()))
    assert not checkpoint.has("embed_tokens")
    assert not checkpoint.has("lm_head")


def test_a_sharded_head_is_the_same(tmp_path):
    head = random_head("eagle3")
    path = write_head(tmp_path, "specforge", head)
    (path / SAFETENSORS).rename(path / "part.safetensors")
    names = open_names(path / "part.safetensors")
    (path / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(names, "part.safetensors")}))
    checkpoint = open_head(path, read_head_config(path, toy_target()))
    assert torch.equal(checkpoint.take("fc"), head["fc"])


def open_names(file):
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        return list(opened.keys())


@pytest.mark.parametrize("form", EAGLE3_FORMATS)
def test_d2t_holds_offsets(tmp_path, form):
    path = write_head(tmp_path, form)
    config = read_head_config(path, toy_target())
    assert draft_ids(open_head(path, config), config).tolist() == list(range(3, 3 + 2 * D, 2))


def test_a_whole_vocabulary_has_no_draft_ids(tmp_path):
    head = {name: tensor for name, tensor in random_head("eagle3").items() if name not in ("d2t", "t2d")}
    path = write_head(tmp_path, "specforge", head | {"lm_head": torch.randn(V, H)}, draft_vocab_size=None)
    config = read_head_config(path, toy_target())
    assert config.draft_vocab_size == V
    assert draft_ids(open_head(path, config), config) is None


def test_zero_offsets_of_a_whole_vocabulary_mean_the_targets_ids(tmp_path):
    whole = {"lm_head": torch.randn(V, H), "d2t": torch.zeros(V, dtype=torch.long), "t2d": torch.ones(V).bool()}
    path = write_head(tmp_path, "specforge", random_head("eagle3") | whole, draft_vocab_size=V)
    config = read_head_config(path, toy_target())
    assert draft_ids(open_head(path, config), config) is None


def test_a_plain_model_is_standalone(tmp_path):
    assert kind_of(write_checkpoint(tmp_path)) == "standalone"


def test_a_second_eagle_layer_has_an_input_norm(tmp_path):
    head = random_head("eagle")
    second = {f"layers.1.{name[9:]}": tensor for name, tensor in head.items() if name.startswith("layers.0.")}
    path = write_head(tmp_path, "eagle", head, num_hidden_layers=2)
    add(path, {f"layers.1.{theirs}.weight": second[f"layers.1.{ours}"] for ours, theirs in SECOND.items()})
    checkpoint = open_head(path, read_head_config(path, toy_target()))
    assert checkpoint.has("layers.1.input_norm")
    assert not checkpoint.has("layers.0.input_norm")


SECOND = {"post_attention_norm": "post_attention_layernorm"}
SECOND |= {f"{part}_proj": f"self_attn.{part}_proj" for part in "qkvo"}
SECOND |= {f"{part}_proj": f"mlp.{part}_proj" for part in ("gate", "up", "down")}


def add(path, tensors):
    from safetensors.torch import load_file, save_file

    tensors |= {"layers.1.input_layernorm.weight": torch.ones(H)}
    save_file(load_file(path / SAFETENSORS) | tensors, path / SAFETENSORS)


def test_the_original_key_for_biases_concerns_queries_keys_and_values_only(tmp_path):
    biases = {f"layers.0.{p}_proj.bias": torch.randn(n) for p, n in zip("qkv", (32, 16, 16), strict=True)}
    head = random_head("eagle") | biases
    path = write_head(tmp_path, "eagle", head, qkv_bias=True)
    config = read_head_config(path, toy_target())
    assert (config.qkv_bias, config.o_bias) == (True, False)
    assert torch.equal(open_head(path, config).take("layers.0.q_proj.bias"), head["layers.0.q_proj.bias"])


def test_a_qwen3_layer_has_norms_of_queries_and_keys(tmp_path):
    head = random_head("mtp") | {"layers.0.q_norm": torch.rand(8), "layers.0.k_norm": torch.rand(8)}
    path = write_head(tmp_path, "qwen-beside", head, **(ONE | {"architectures": ["Qwen3ForCausalLM"]}))
    config = read_head_config(path, toy_target(architectures=["Qwen3ForCausalLM"]))
    assert config.qk_norm
    assert torch.equal(open_head(path, config).take("layers.0.q_norm"), head["layers.0.q_norm"])


@pytest.mark.parametrize("form", ["specforge", "speculators-eagle3", "eagle"])
def test_a_head_whose_weights_are_quantised_is_what_they_stand_for(tmp_path, form):
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
    settings = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }
    path = write_head(tmp_path, form, quantization_config=settings)
    tensors, expected = load_file(path / SAFETENSORS), {}
    for name, tensor in list(tensors.items()):
        if name.endswith("_proj.weight"):
            scale = tensor.abs().amax(1, keepdim=True) / 127
            tensors[name] = (tensor / scale).round().to(torch.int8)
            tensors[f"{name}_scale"] = scale
            expected[name] = tensors[name] * scale
    save_file(tensors, path / SAFETENSORS)
    checkpoint = open_head(path, read_head_config(path, toy_target()))
    taken = [checkpoint.take(name) for name in checkpoint.canonical_names]
    assert len(expected) == 7
    for weight in expected.values():
        assert any(each.shape == weight.shape and torch.equal(each, weight) for each in taken)
