"""What is wrong with a draft head is an error by name when it is opened, never low acceptance."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
import torch
from toy_heads import (
    FORMATS,
    LAYERS,
    QWEN,
    SAFETENSORS,
    SIZES,
    D,
    H,
    V,
    change_tensors,
    file_name,
    random_head,
    speculators,
    toy_target,
    write_head,
)

from specserve.errors import ModelError
from specserve.models.experts_config import ExpertsConfig
from specserve_eagle.checkpoints import draft_ids, kind_of, open_head, read_head_config
from specserve_eagle.checkpoints.family import refuse_arithmetic
from specserve_workbench.testing.toy import write_checkpoint


def open_toy(path, **target):
    config = read_head_config(path, toy_target(**target))
    return open_head(path, config), config


def refused(path, match, **target):
    with pytest.raises(ModelError, match=match):
        draft_ids(*open_toy(path, **target))


def required(form):
    return [name for name in random_head(FORMATS[form].kind) if name not in ("t2d", "fc", "fc.bias")]


@pytest.mark.parametrize("form", ["specforge", "eagle", "deepseek-beside", "deepseek-inside", "speculators-eagle"])
def test_every_missing_tensor_is_named(tmp_path, form):
    for name in required(form):
        head = random_head(FORMATS[form].kind)
        path = write_head(tmp_path / name, form, head)
        theirs = file_name(name, FORMATS[form])
        refused(change_tensors(path, **{theirs: None}), f"{re.escape(theirs)} is missing")


@pytest.mark.parametrize(("form", "name"), [("eagle", "fc.bias"), ("speculators-eagle", "fusion_fc.bias")])
def test_a_bias_that_config_json_promises_must_be_there(tmp_path, form, name):
    refused(change_tensors(write_head(tmp_path, form, bias=True), **{name: None}), f"{name} is missing")


def test_attention_biases_that_config_json_promises_must_be_there(tmp_path):
    refused(write_head(tmp_path, "specforge", attention_bias=True), "q_proj.bias is missing")


@pytest.mark.parametrize("form", FORMATS)
def test_a_superfluous_tensor_is_named(tmp_path, form):
    kind = FORMATS[form].kind
    extra = f"model.layers.{LAYERS}.extra.weight" if form.startswith("deepseek") else "extra_norm.weight"
    path = change_tensors(write_head(tmp_path, form), **{extra: torch.ones(H)})
    refused(path, f"tensor {extra} is not part of the {kind} head")


def test_layers_of_the_target_are_superfluous_beside_its_checkpoint(tmp_path):
    name = "model.layers.3.mlp.up_proj.weight"
    path = change_tensors(write_head(tmp_path, "deepseek-beside"), **{name: torch.ones(2)})
    refused(path, f"{name} is not part of the mtp head")


def test_a_rotary_buffer_of_old_exporters_is_let_pass(tmp_path):
    open_toy(change_tensors(write_head(tmp_path, "eagle"), **{"layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}))


def test_a_norm_at_the_input_of_eagles_first_layer_is_superfluous(tmp_path):
    path = change_tensors(write_head(tmp_path, "eagle"), layers__0__input_layernorm__weight=torch.ones(H))
    refused(path, r"layers\.0\.input_layernorm\.weight is not part of the eagle head")


def test_the_targets_layers_are_superfluous_in_an_eagle_head(tmp_path):
    path = change_tensors(
        write_head(tmp_path, "specforge"), model__norm__weight=torch.ones(H), norm__weight=torch.ones(H)
    )
    refused(path, r"model\.norm\.weight is not part")


@pytest.mark.parametrize("form", ["specforge", "eagle", "qwen-beside", "speculators-eagle"])
def test_a_wrong_shape_is_named(tmp_path, form):
    head = random_head(FORMATS[form].kind)
    refused(write_head(tmp_path, form, head | {"fc": torch.ones(H, H)}), r"shape \[32, 32\], but config.json says")


@pytest.mark.parametrize(("dtype", "name"), [(torch.int8, "I8"), (torch.int32, "I32"), (torch.int64, "I64")])
def test_integer_weights_are_refused(tmp_path, dtype, name):
    head = random_head("eagle") | {"layers.0.q_proj": torch.ones(H, H, dtype=dtype)}
    refused(write_head(tmp_path, "eagle", head), f"has type {name}; allowed: F64")


def test_floating_point_offsets_are_refused(tmp_path):
    refused(write_head(tmp_path, "specforge", random_head("eagle3") | {"d2t": torch.ones(D)}), "d2t has type F32")


def test_quantised_heads_are_refused(tmp_path):
    refused(write_head(tmp_path, "specforge", quantization_config={"quant_method": "hqq"}), "quantised weights")


def test_original_pickles_are_refused(tmp_path):
    path = write_head(tmp_path, "eagle")
    (path / SAFETENSORS).unlink()
    (path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(ModelError, match=r"only pickled weights \(pytorch_model\.bin\).*Convert the weights"):
        kind_of(path)


def test_a_truncated_file_is_refused(tmp_path):
    path = write_head(tmp_path, "eagle")
    content = (path / SAFETENSORS).read_bytes()
    (path / SAFETENSORS).write_bytes(content[: len(content) // 2])
    refused(path, "truncated")


@pytest.mark.parametrize(
    ("offsets", "match"),
    [
        (torch.full((D,), V), "gives draft token 0 the target's id 64; allowed: 0 to 63"),
        (torch.full((D,), -1), "gives draft token 0 the target's id -1"),
        (-torch.arange(D), "gives two draft tokens the same target id"),
        (torch.arange(D), "t2d disagree about target token 0"),
    ],
)
def test_wrong_offsets_are_refused(tmp_path, offsets, match):
    refused(write_head(tmp_path, "specforge", random_head("eagle3") | {"d2t": offsets}), match)


def test_target_ids_in_place_of_offsets_are_refused(tmp_path):
    ids = 3 + 2 * torch.arange(D)
    refused(write_head(tmp_path, "specforge", random_head("eagle3") | {"d2t": ids}), "must hold offsets")


@pytest.mark.parametrize("form", ["specforge", "eagle", "qwen-beside", "speculators-eagle3", "speculators-mtp"])
def test_a_head_for_another_vocabulary_is_refused(tmp_path, form):
    refused(
        write_head(tmp_path, form),
        "config.json: vocabulary of the head: 64 tokens.*trained for another target",
        vocab_size=96,
    )


@pytest.mark.parametrize("form", ["eagle", "deepseek-beside", "speculators-eagle"])
def test_a_head_for_another_hidden_size_is_refused(tmp_path, form):
    refused(
        write_head(tmp_path, form),
        "target_hidden_size of the head: 32; of the target: hidden states of 64",
        hidden_size=64,
    )


def test_a_narrow_eagle3_head_needs_its_own_embedding(tmp_path):
    head = random_head("eagle3") | {"fc": torch.randn(H, 3 * 64)}
    refused(
        write_head(tmp_path / "without", "specforge", head, target_hidden_size=64), "no embed_tokens", hidden_size=64
    )
    path = write_head(tmp_path, "specforge", head | {"embed_tokens": torch.randn(V, H)}, target_hidden_size=64)
    checkpoint, config = open_toy(path, hidden_size=64)
    assert (config.hidden_size, config.target_hidden_size) == (H, 64)
    assert checkpoint.take("fc").shape == (H, 3 * 64)


def test_an_mtp_layer_of_a_deeper_target_is_refused(tmp_path):
    path = write_head(tmp_path, "deepseek-beside")
    refused(path, "trained for a target of 8 layers; this one has 6", num_hidden_layers=6)
    path = write_head(tmp_path, "deepseek-beside", num_hidden_layers=6)
    refused(path, "MTP layer of the head: number 8; of the target: 6 layers", num_hidden_layers=6)


def test_a_verifier_of_another_family_is_refused(tmp_path):
    refused(
        write_head(tmp_path, "speculators-eagle3"),
        "verifier of the head: org/target of family llama; of the target: family qwen2",
        architectures=["Qwen2ForCausalLM"],
    )


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"speculators_config": "eagle3"}, "speculators_config must be an object; got 'eagle3'"),
        ({"speculators_config": {"verifier": [1]}}, r"verifier must be an object; got \[1\]"),
        ({"speculators_config": {"verifier": {"architectures": 5}}}, "architectures must be a list; got 5"),
        ({"speculators_model_type": ["eagle3"]}, r"speculators_model_type \['eagle3'\] is not supported"),
    ],
    ids=str,
)
def test_what_the_speculators_format_says_is_checked(tmp_path, changes, match):
    refused(write_head(tmp_path, "speculators-eagle3", **changes), match)


def test_a_router_with_a_bias_is_refused():
    experts = ExpertsConfig(count=4, chosen=2, inner_size=8, layers=(True,), router_bias=True)
    with pytest.raises(ModelError, match="biases of routers"):
        refuse_arithmetic({}, msgspec.structs.replace(toy_target(), experts=experts), "config.json")


@pytest.mark.parametrize("form", ["deepseek-beside", "qwen-beside"])
def test_more_than_one_mtp_layer_is_refused(tmp_path, form):
    refused(write_head(tmp_path, form, num_nextn_predict_layers=2), "MTP head of 2 layers is not supported")


@pytest.mark.parametrize(
    ("form", "changes", "match"),
    [
        ("deepseek-beside", {"architectures": ["MistralForCausalLM"]}, "sliding window is not supported"),
        ("deepseek-beside", {"kv_lora_rank": 64}, "kv_lora_rank = 64 .multi-head latent attention"),
        ("qwen-beside", {"num_experts": 8}, "num_experts = 8 .a mixture of experts"),
        ("specforge", {"fc_norm": True}, "fc_norm.0.weight is missing"),
        ("speculators-eagle3", {"norm_before_fc": True}, "input_norm.weight is missing"),
        ("specforge", {"fc_norm": True, "norm_before_fc": True}, "fc_norm and norm_before_fc are both true"),
        ("specforge", {"norm_output": 1}, "norm_output must be true or false; got 1"),
        ("eagle", {"norm_output": True}, "norm_output = True .a norm of the hidden state that is fed back"),
        ("nextn", {"fc_norm": True}, "fc_norm = True .a norm of each hidden state before fc"),
        ("speculators-eagle", {"layernorms": True}, "HASS's additional norms"),
        ("specforge", {"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state = false"),
        (
            "specforge",
            {"architectures": ["Eagle3DeepseekV2ForCausalLM"], "model_type": "x"},
            "Eagle3DeepseekV2ForCausalLM",
        ),
        ("qwen-beside", {"architectures": ["Qwen3NextForCausalLM"]}, "a head of Qwen3NextForCausalLM layers"),
        ("specforge", {"sliding_window": 16, "architectures": ["MistralForCausalLMEagle3"]}, "sliding window"),
        ("specforge", {"rope_scaling": {"rope_type": "new", "factor": 2.0}}, "rotary type 'new' is not supported"),
        ("specforge", {"draft_vocab_size": V + 1}, "draft_vocab_size must be between 1 and vocab_size"),
        (
            "speculators-eagle3",
            {"quantization_config": {"quant_method": "fp8"}},
            "quantised weights of quant_method .fp8",
        ),
        ("speculators-eagle3", {"norm_before_residual": None}, "norm_before_residual must be true or false"),
        (
            "speculators-eagle3",
            {"speculators_model_type": "medusa"},
            "speculators_model_type 'medusa' is not supported",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_name(tmp_path, form, changes, match):
    refused(write_head(tmp_path, form, **changes), match)


def test_experts_are_refused_by_their_tensors(tmp_path):
    path = write_head(tmp_path, "qwen-beside")
    name = f"{QWEN['fc'].removesuffix('fc')}layers.0.mlp.experts.0.up_proj.weight"
    refused(change_tensors(path, **{name: torch.ones(2)}), "experts.0.up_proj.weight .a mixture of experts. is")


def test_an_unknown_directory_says_what_was_found_and_what_is_supported(tmp_path):
    path = write_checkpoint(tmp_path)
    raw = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(raw | {"architectures": ["MedusaModel"]}))
    with pytest.raises(ModelError, match=r"MedusaModel.*Supported: EAGLE-1/2.*LlamaForCausalLM"):
        kind_of(path)


def test_a_whole_model_is_not_a_head(tmp_path):
    with pytest.raises(ModelError, match="is a whole model, not a head"):
        read_head_config(write_checkpoint(tmp_path), toy_target())


def test_an_mtp_config_without_mtp_tensors_is_refused(tmp_path):
    path = write_head(tmp_path, "eagle")
    (path / "config.json").write_text(json.dumps(speculators("mtp")))
    refused(path, "describes an MTP head, but no tensor is eh_proj")


def test_a_missing_size_is_named(tmp_path):
    path = write_head(tmp_path, "specforge")
    raw = {name: value for name, value in SIZES.items() if name != "intermediate_size"}
    (path / "config.json").write_text(json.dumps(raw | {"architectures": ["LlamaForCausalLMEagle3"]}))
    refused(path, "intermediate_size")
