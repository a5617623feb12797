"""The families whose layers are not Llama's: absent keys, larger matrices, and the promise on every kernel set."""

from __future__ import annotations

import json

import pytest
import torch
from naive_forward import forward, load
from transformers import AutoModelForCausalLM

from covering import covering
from specserve.errors import ModelError
from specserve.kernels.torch_kernels import TorchKernels
from specserve.models.decoder import DecoderModel
from specserve.models.loader import load_model
from specserve.models.read_config import read_config
from specserve.models.tiled import forward_pass
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import make_engine, run
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

FAMILIES = (
    *("gemma2", "gemma3_text", "granite", "ministral", "ministral3", "olmo2", "olmo3", "phi3", "smollm3"),
    *("gpt_oss", "granitemoe", "mixtral", "olmoe", "qwen3_moe"),
    *("lfm2", "lfm2_moe", "lfm3", "qwen3_5_text"),
    *("qwen3_5_moe_text", "qwen2_moe", "granitemoeshared", "glm4_moe"),
    "gemma4_text",
)
PROMPT = [(11 * i + 3) % 300 for i in range(70)]


def change(path, **values):
    """None removes the key."""
    file = path / "config.json"
    found = {**json.loads(file.read_text()), **values}
    file.write_text(json.dumps({key: value for key, value in found.items() if value is not None}))


KEYS = ("rms_norm_eps", "rope_theta", "hidden_act", "tie_word_embeddings", "layer_types")
VARIED = {
    "gemma4_text": {
        "num_hidden_layers": 5,
        "layer_types": [
            "sliding_attention",
            "full_attention",
            "sliding_attention",
            "sliding_attention",
            "full_attention",
        ],
        "num_kv_shared_layers": 2,
        "use_double_wide_mlp": True,
    }
}
"""What a toy has beyond its default where all that layers may differ in is to run."""
KINDS_NEEDED = {"lfm2_moe": ["conv", "full_attention", "conv"], "lfm3": ["conv", "sliding_attention", "conv"]}
"""Of three layers: families that need `layer_types`, and those that have none with attention among the first two."""


@pytest.mark.parametrize(
    ("family", "key"),
    [(family, key) for family in FAMILIES for key in KEYS if key[:5] != "layer" or family not in KINDS_NEEDED],
)
def test_a_key_that_is_absent_means_what_it_does_in_transformers(tmp_path, family, key):
    given = {"rms_norm_eps": 1e-1} if key == "rms_norm_eps" else {}
    path = write_checkpoint(tmp_path, architecture=family, num_hidden_layers=2, **given)
    change(path, **{key: None})
    theirs = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    torch.testing.assert_close(forward(load(path), PROMPT), theirs(torch.tensor([PROMPT])).logits[0], atol=1e-4, rtol=0)


@covering(family=FAMILIES, arithmetic=["torch-float32", "torch-bfloat16", "cpu-float32", "cpu-bfloat16"])
def test_drafts_chunks_and_neighbours_change_nothing(tmp_path, family, arithmetic):
    kernels, dtype = arithmetic.split("-")
    path, requests = tmp_path / "model", varied_requests(8)
    write_checkpoint(path, architecture=family, **VARIED.get(family, {}))
    options = {"dtype": dtype, "plugins": ("cpu",) if kernels == "cpu" else ()}
    alone = run(path, requests, max_num_seqs=1, prefix_cache=False, **options)
    noisy = NoisyDrafter(alone.tokens(), p=0.8, max_width=6, vocab_size=TOY_VOCAB)
    drafted = run(path, requests, noisy, max_num_batched_tokens=24, **options)
    assert drafted.decided() == alone.decided()
    assert drafted.metrics.num_accepted_tokens > 20


@pytest.mark.parametrize("family", FAMILIES)
def test_a_missing_tensor_is_named(tmp_path, family):
    path = write_checkpoint(tmp_path / "model", architecture=family)
    kinds = KINDS_NEEDED | {"gemma4_text": ["sliding_attention", "full_attention", "full_attention"]}
    change(path, num_hidden_layers=3, layer_types=kinds.get(family), no_rope_layers=None)
    with pytest.raises(ModelError, match=r"tensor model\.layers\.2\.\S+ is missing"):
        make_engine(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"intermediate_size": 256}, r"gate_up_proj.weight has 640 rows, but config.json says 512"),
        ({"intermediate_size": 384}, r"gate_up_proj.weight has 640 rows, but config.json says 768"),
        ({"num_key_value_heads": 1}, r"qkv_proj.weight has 256 rows, but config.json says 192"),
        ({"hidden_size": 64}, r"has shape \[\d+, 128\], but config.json says"),
    ],
    ids=str,
)
def test_a_larger_matrix_of_another_size_is_refused(tmp_path, changes, message):
    path = write_checkpoint(tmp_path / "model", architecture="phi3")
    change(path, **changes)
    with pytest.raises(ModelError, match=message):
        make_engine(path)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("smollm3", {"no_rope_layers": [1]}, r"no_rope_layers must have a 1 for each layer that rotates.*got \[1\]"),
        ("smollm3", {"no_rope_layers": [1, 2]}, r"no_rope_layers must have a 1 .*got \[1, 2\]"),
        ("smollm3", {"no_rope_layers": None, "no_rope_layer_interval": 0}, "no_rope_layer_interval must be .*got 0"),
        ("gemma3_text", {"hidden_activation": "gelu"}, "hidden_activation must be gelu_pytorch_tanh; got 'gelu'"),
        ("gemma3_text", {"attn_logit_softcapping": 0}, "attn_logit_softcapping must be a positive number; got 0"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_attention = True is not implemented"),
        ("gemma3_text", {"layer_types": ["full_attention"]}, "layer_types must name .* each of the 2 layers"),
        ("gemma3_text", {"rope_parameters": {"rope_theta": 1e6}}, "rope_parameters must have an object for each"),
        ("gemma3_text", {"layer_types": None, "sliding_window_pattern": 0}, "sliding_window_pattern must be .*got 0"),
        ("gemma3_text", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar must be a positive number; got 0"),
        ("gemma3_text", {"query_pre_attn_scalar": "x"}, "query_pre_attn_scalar must be a positive number; got 'x'"),
        ("gemma3_text", {"final_logit_softcapping": -1.0}, "final_logit_softcapping must be a positive .*got -1.0"),
        ("gemma3_text", {"hidden_size": None}, "hidden_size must be a positive number; got None"),
        (
            "gemma4_text",
            {"num_kv_shared_layers": 2},
            "num_kv_shared_layers must be a number of layers from 0 to 1.*got 2",
        ),
        ("gemma4_text", {"num_kv_shared_layers": 1}, "none is of kind full_attention. Correct num_kv_shared_layers"),
        ("gemma4_text", {"use_bidirectional_attention": "all"}, '= .all. is not implemented; allowed: null, or "v'),
        (
            "gemma4_text",
            {"vocab_size_per_layer_input": 9},
            "vocab_size_per_layer_input must be at least vocab_size, 320",
        ),
        ("gemma4_text", {"global_head_dim": 33}, "kind full_attention must have an even size of heads.*got 33 and 2"),
        (
            "gemma4_text",
            {"attention_k_eq_v": True, "num_global_key_value_heads": 3},
            r"key heads that divides num_attention_heads \(4\); got 32 and 3",
        ),
        (
            "gemma4_text",
            {"per_layer_config": {"0": {"head_dim": 32}}},
            r"per_layer_config must .* window \(1\) and for no",
        ),
        ("gemma4_text", {"per_layer_config": {"1": {"head_dim": 0}}}, "head_dim must be a whole number.*got 0"),
        ("gemma4_text", {"per_layer_config": {"1": {"colour": 1}}}, "Other numbers by layer are not implemented"),
        (
            "ministral3",
            {"rope_parameters": {"rope_theta": 1e4}},
            "llama_4_scaling_beta must be a positive number; got None",
        ),
        ("gemma2", {"attn_logit_softcapping": "x"}, "attn_logit_softcapping must be a positive number; got 'x'"),
        ("granite", {"residual_multiplier": [1]}, r"residual_multiplier must be a positive number; got \[1\]"),
        ("granite", {"logits_scaling": 0.0}, "logits_scaling must be a positive number; got 0.0"),
        ("olmo3", {"rope_scaling": {"rope_type": "linear", "factor": "x"}}, "rope_parameters.*factor"),
    ],
    ids=str,
)
def test_what_a_file_cannot_say_is_refused_by_name(tmp_path, family, changes, message):
    path = write_checkpoint(tmp_path / "model", architecture=family)
    change(path, **changes)
    with pytest.raises(ModelError, match=message):
        read_config(path)


@pytest.mark.parametrize("family", ["llama", "phi3", *(name for name in FAMILIES if name != "phi3")])
def test_a_kernel_set_fuses_only_layers_whose_traits_it_knows(tmp_path, family):
    class Fusing(TorchKernels):
        def fuse(self, model, attention):
            return "fused"

    kernels = Fusing()
    model = load_model(write_checkpoint(tmp_path, architecture=family), kernels=kernels)
    is_as_llama = family in ("llama", "ministral", "phi3")
    assert (forward_pass(model, kernels, None) == "fused") == is_as_llama
    kernels.fuses = model.config.beyond_llama
    assert (forward_pass(model, kernels, None) == "fused") == (type(model) is DecoderModel)
    assert bool(kernels.fuses) != is_as_llama


def test_an_unknown_setting_of_one_rotation_is_named_with_its_kind(tmp_path):
    path = write_checkpoint(tmp_path, architecture="gemma3_text")
    settings = {"full_attention": {"rope_theta": 1e6, "colour": 3}, "sliding_attention": {"rope_theta": 1e4}}
    change(path, rope_parameters=settings)
    assert read_config(path).unknown_fields == ("rope_parameters.full_attention.colour",)


def test_a_context_in_which_no_query_is_scaled_has_no_scale(tmp_path):
    """So that kernel sets may fuse its layers."""
    path, length = write_checkpoint(tmp_path, architecture="ministral3"), 16
    short, long = (load(path, max_model_len=longest) for longest in (length, length + 1))
    assert short.config.beyond_llama == frozenset()
    assert long.config.beyond_llama == {"query scale"}
    torch.testing.assert_close(forward(short, PROMPT[:length]), forward(long, PROMPT[:length]), atol=0, rtol=0)
