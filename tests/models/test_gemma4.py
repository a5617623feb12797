"""Gemma 4: its text within a model that reads images, keys and values of several sizes, and what cannot hold them."""

from __future__ import annotations

import pytest
import torch
from changed_files import change_json
from naive_forward import forward, load
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, Gemma4Config

from specserve.api import ModelError
from specserve.models.projection import BatchRows
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import varied_requests
from specserve_workbench.testing.toy import write_checkpoint

PROMPT = [(11 * i + 3) % 299 + 1 for i in range(60)]
FULL, SLIDING = "full_attention", "sliding_attention"
SHARING = {"num_hidden_layers": 5, "layer_types": [SLIDING, FULL] * 2 + [FULL], "num_kv_shared_layers": 2}
KEYS = 2 * 2
"""Of a token in a layer: keys and values, of two heads."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("model"), architecture="gemma4_text", **SHARING)


def test_the_text_part_of_a_model_that_reads_images_is_served(tmp_path):
    sizes = {"vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 16}
    sizes |= {"num_key_value_heads": 2, "global_head_dim": 32, "max_position_embeddings": 512, "sliding_window": 24}
    sizes |= {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 320, **SHARING}
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"head_dim": 16, "num_key_value_heads": 2, "position_embedding_size": 64}
    torch.manual_seed(0)
    config = Gemma4Config(text_config=sizes, vision_config=vision, audio_config=None)
    theirs = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval()
    for parameter in theirs.parameters():
        parameter.data.mul_(2)
    theirs.save_pretrained(tmp_path)
    with torch.inference_mode():
        expected = theirs(input_ids=torch.tensor([PROMPT])).logits[0]
    torch.testing.assert_close(forward(load(tmp_path), PROMPT), expected, atol=2e-4, rtol=0)


def test_keys_and_values_that_published_files_have_and_nobody_reads_are_left_out(tmp_path):
    path = write_checkpoint(tmp_path, architecture="gemma4_text", **SHARING)
    expected = forward(load(path), PROMPT)
    file, tensors = path / "model.safetensors", load_file(path / "model.safetensors")
    assert "model.layers.3.self_attn.k_proj.weight" not in tensors
    unread = {"k_proj.weight": (64, 128), "v_proj.weight": (64, 128), "k_norm.weight": (32,)}
    tensors |= {f"model.layers.3.self_attn.{name}": torch.ones(shape) for name, shape in unread.items()}
    save_file(tensors, file, metadata={"format": "pt"})
    assert torch.equal(forward(load(path), PROMPT), expected)
    save_file(tensors | {"model.layers.1.self_attn.sinks": torch.ones(4)}, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match="sinks would change what the model computes"):
        load(path)


@pytest.mark.parametrize("plugins", [(), ("cpu",)], ids=["torch", "cpu"])
def test_each_size_of_heads_has_a_part_of_the_cache(model, plugins):
    """Three of five layers have keys and values; two of these have small heads."""
    engine = make_engine(model, plugins=plugins, kv_memory="1M", dtype="float32").engine
    cache = engine.parts.cache
    assert [len(part.slots) for part in (cache, *cache.others)] == [2, 1]
    of_block = 16 * KEYS * (2 * 16 + 32) * 4
    assert cache.num_blocks == 2**20 // of_block
    assert sum(part.data.nbytes for part in (cache, *cache.others)) == cache.num_blocks * of_block
    assert engine.runner.attention.name == f"{'cpu_paged' if plugins else 'sdpa'} for heads of 2 sizes"


def test_heads_of_one_size_have_one_cache_and_may_be_recorded(tmp_path):
    path = write_checkpoint(tmp_path, architecture="gemma4_text", global_head_dim=16, **SHARING)
    options = {"plugins": ("cpu",), "graphs": "piecewise", "graph_buckets": (4, 8, 40)}
    requests = varied_requests(8)
    engine = make_engine(path, **options).engine
    assert engine.parts.cache.others == ()
    assert run_requests(engine, requests).decided() == run(path, requests, plugins=("cpu",)).decided()
    assert engine.metrics.graph_steps["piecewise", ""] > 10


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_types": [FULL, FULL]},
        {"layer_types": [FULL, FULL], "global_head_dim": 16, "attention_k_eq_v": True, "num_global_key_value_heads": 1},
    ],
    ids=["head_dim", "num_key_value_heads"],
)
@pytest.mark.parametrize("graphs", ["piecewise", "full"])
def test_heads_of_one_size_that_is_not_that_of_windows_may_be_recorded(tmp_path, changes, graphs):
    path = write_checkpoint(tmp_path, architecture="gemma4_text", **changes)
    requests = varied_requests(8)
    engine = make_engine(path, plugins=("cpu",), graphs=graphs, graph_buckets=(4, 8, 40)).engine
    assert run_requests(engine, requests).decided() == run(path, requests, plugins=("cpu",)).decided()
    assert sum(steps for (mode, _), steps in engine.metrics.graph_steps.items() if mode != "none") > 10


def test_steps_of_heads_of_several_sizes_run_without_graphs_and_say_so(model):
    options = {"plugins": ("cpu",), "graphs": "full"}
    engine = make_engine(model, **options).engine
    requests = varied_requests(4)
    assert run_requests(engine, requests).decided() == run(model, requests, plugins=("cpu",)).decided()
    reasons = {reason for mode, reason in engine.metrics.graph_steps if mode == "none"}
    assert "attention cpu_paged for heads of 2 sizes has no full graphs" in " ".join(reasons)
    assert not any(mode != "none" for mode, _ in engine.metrics.graph_steps)


def test_a_backend_must_fit_heads_of_every_size(tmp_path):
    path = write_checkpoint(tmp_path, architecture="gemma4_text", head_dim=16, global_head_dim=34)
    spec = make_engine(path, plugins=("cpu",), dtype="float32").engine.runner.attention.backends[0].spec
    assert spec.kv_layout.name == "by_slot", "34 numbers do not fill a panel of 16"


def test_vectors_of_tokens_need_no_tensor_that_is_made_of_a_number(model, monkeypatch):
    """To a GPU each would be a copy, which graphs cannot record."""
    loaded = load(model)
    ids = torch.tensor(PROMPT[:32])
    x = loaded.embed(ids)
    for owner, name in ((torch, "tensor"), (torch.Tensor, "new_tensor")):
        monkeypatch.setattr(owner, name, lambda *args, name=name: pytest.fail(f"called {name}"))
    assert loaded.layer_inputs(x, ids, BatchRows(slice(0, 32), None)).shape == (5, 32, 24)


@pytest.mark.parametrize("numbers", [16, 8])
def test_a_rotation_fits_the_heads_of_its_layers(tmp_path, numbers):
    """Those of layers without a window have 16 pairs, the others' 8."""
    path = write_checkpoint(tmp_path, architecture="gemma4_text")
    of_full = {"rope_type": "longrope", "short_factor": [1.0] * numbers, "long_factor": [2.0] * numbers}
    change_json(path / "config.json", rope_parameters={FULL: of_full, SLIDING: {"rope_type": "default"}})
    if numbers == 8:
        with pytest.raises(ModelError, match="short_factor must have 16 numbers; got 8"):
            load(path)
        return
    loaded = load(path)
    assert [table.cos.shape[-1] for table in (loaded.rotary, *loaded.layer_rotaries)] == [32, 16, 32]


def test_a_draft_model_has_a_plain_decoder(model):
    target = write_checkpoint(model.parent / "target")
    options = {"plugins": ("eagle",), "plugin_options": {"eagle": {"model": str(model)}}}
    with pytest.raises(ModelError, match=r"must have a plain decoder.* gemma4_text \(VariedDecoder\) is none.*n-gram"):
        make_engine(target, **options)


def test_experts_of_half_precision_are_added_as_transformers_adds_them(tmp_path):
    """The weights of experts stay in float32."""
    experts = {"enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 48}
    path = write_checkpoint(tmp_path, architecture="gemma4_text", dtype="bfloat16", **experts)
    theirs = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16, attn_implementation="eager").eval()
    theirs.set_experts_implementation("batched_mm")
    ours, layer = load(path).layers[0].mlp, theirs.model.layers[0]
    x = torch.randn(512, 128, generator=torch.Generator().manual_seed(0)).bfloat16()
    routed = ours.normed(x, ours.norms.router_input) * ours.router_scale * 128**-0.5
    with torch.inference_mode():
        _, weights, chosen = layer.router(x)
        expected, got = layer.experts(x, chosen, weights), ours.experts(x, BatchRows(slice(0, 512), None), routed)
    assert (got == expected).float().mean() > 0.99  # but for a row whose scores are equal


@pytest.mark.parametrize("key", ["attention_k_eq_v", "enable_moe_block", "use_double_wide_mlp"])
def test_a_switch_is_true_false_or_null(tmp_path, key):
    path = write_checkpoint(tmp_path, architecture="gemma4_text")
    change_json(path / "config.json", **{key: None})
    load(path)
    change_json(path / "config.json", **{key: "false"})
    with pytest.raises(ModelError, match=f"{key} must be true, false or null; got 'false'"):
        load(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"top_k_experts": None}, "top_k_experts must be a whole number, at least 1; got None"),
        ({"top_k_experts": 7}, "top_k_experts must be at most the number of experts, 6; got 7"),
        ({"moe_intermediate_size": None}, "moe_intermediate_size must be a whole number, at least 1; got None"),
        ({"num_experts": None}, "num_experts must be a whole number, at least 1; got None"),
    ],
    ids=str,
)
def test_numbers_of_experts_that_are_wrong_are_named(tmp_path, changes, message):
    experts = {"enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 48}
    path = write_checkpoint(tmp_path, architecture="gemma4_text", **experts)
    change_json(path / "config.json", **changes)
    with pytest.raises(ModelError, match=message):
        load(path)
