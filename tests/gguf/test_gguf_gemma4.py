"""Gemma 4's files: they say what the converted models say, what they cannot say is refused, and a quantised file is
served as the numbers that ggml's own dequantiser makes of it."""

from __future__ import annotations

import conversion
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import gguf
from specserve.api import ModelError
from specserve.models.checkpoint import Checkpoint
from specserve.models.locate import locate_model
from specserve.models.read_config import read_config
from specserve.protocols.quantised import PackedRows
from specserve_gguf.source import Gguf
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import make_engine, run
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

KINDS = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"]
SIZES = {
    "num_hidden_layers": 5,
    "layer_types": KINDS,
    "num_kv_shared_layers": 2,
    "head_dim": 32,
    "global_head_dim": 64,
    "hidden_size_per_layer_input": 32,
    "tie_word_embeddings": True,
}
DENSE = {**SIZES, "use_double_wide_mlp": True}
EXPERTS = {
    **SIZES,
    "enable_moe_block": True,
    "num_experts": 4,
    "top_k_experts": 2,
    "moe_intermediate_size": 64,
    "attention_k_eq_v": True,
    "num_global_key_value_heads": 1,
}
HEADS, WIDTH = "attention.head_count_kv", "feed_forward_length"
FREQUENCIES = "rope_freqs.weight"


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def written(tmp_path, config=DENSE, kind="F32", **extra):
    original = write_checkpoint(tmp_path / "model", architecture="gemma4_text", **config)
    return conversion.convert(original, tmp_path / "model.gguf", kind, extra=extra)


def directory(tmp_path, config=DENSE, kind="F32", **extra):
    return locate_model(str(written(tmp_path, config, kind, **extra)))


@pytest.mark.parametrize("config", [DENSE, EXPERTS], ids=["dense", "experts"])
@pytest.mark.usefixtures("each_kernel_set")
def test_a_file_says_what_the_model_says_that_was_converted(tmp_path, config):
    file, requests = written(tmp_path, config), varied_requests(5)
    wanted = run(tmp_path / "model", requests, dtype="float32").tokens()
    assert run(str(file), requests, plugins=("gguf",), dtype="float32").tokens() == wanted


def dequantised(original, file, folder):
    """The model with the numbers that ggml's own dequantiser reads from the file; the others are as they were."""
    numbers = {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in gguf.GGUFReader(file).tensors
    }
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA4, len(KINDS))
    changed = {}
    for name, tensor in load_file(original / "model.safetensors").items():
        stem = name.removesuffix(".weight")
        theirs = names.get_name(stem)
        found = numbers.get(f"{theirs}.weight")
        kept = found is None or stem.endswith("layer_scalar")
        changed[name] = tensor if kept else torch.from_numpy(found.reshape(tensor.shape).copy())
    folder.mkdir()
    for each in original.iterdir():
        (folder / each.name).write_bytes(each.read_bytes())
    save_file(changed, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("config", [DENSE, EXPERTS], ids=["dense", "experts"])
@pytest.mark.parametrize(("kind", "kernels"), [("Q8_0", "torch"), ("Q4_0", "torch"), ("Q4_0", "cpu")])
def test_a_quantised_file_is_served_as_ggml_reads_it(tmp_path, config, kind, kernels):
    """Where inputs are not rounded to 8 bits."""
    file, requests = written(tmp_path, config, kind), varied_requests(4)
    options = {"cpu": {"activations": "float"}} if kernels == "cpu" else {}
    plain = {"default_plugins": False, "plugins": (*options,), "plugin_options": options}
    model = dequantised(tmp_path / "model", file, tmp_path / "dequantised")
    wanted = run(model, requests, dtype="float32", **plain).tokens()
    assert run(tmp_path / "model", requests, dtype="float32", **plain).tokens() != wanted, "rounding changes some token"
    of_file = plain | {"plugins": ("gguf", *options)}
    assert run(str(file), requests, dtype="float32", **of_file).tokens() == wanted


def test_the_vectors_of_tokens_stay_packed_and_are_unpacked_as_they_are_asked_for(tmp_path):
    file = str(written(tmp_path, DENSE, "Q4_0"))
    native, plain = (
        make_engine(file, plugins=names, default_plugins=False, dtype="float32").engine.runner.model.of_tokens.table
        for names in (("gguf", "cpu"), ("gguf",))
    )
    assert isinstance(native.packed, PackedRows)
    assert native.weight.numel() == 0
    ids = torch.tensor([0, 339, 7, 7, 160])
    assert torch.equal(native.rows(ids), plain.rows(ids))


@pytest.mark.parametrize("config", [DENSE, EXPERTS], ids=["dense", "experts"])
def test_drafts_chunks_and_neighbours_change_nothing_in_a_quantised_file(tmp_path, config):
    file, requests = str(written(tmp_path, config, "Q4_0")), varied_requests(6)
    options = {"dtype": "bfloat16", "plugins": ("gguf", "cpu"), "default_plugins": False}
    alone = run(file, requests, max_num_seqs=1, prefix_cache=False, **options)
    noisy = NoisyDrafter(alone.tokens(), p=0.8, max_width=6, vocab_size=TOY_VOCAB)
    drafted = run(file, requests, noisy, max_num_batched_tokens=24, **options)
    assert drafted.decided() == alone.decided()
    assert drafted.metrics.num_accepted_tokens > 20


def test_quantised_files_keep_the_maps_packed_and_vectors_and_routers_as_they_are(tmp_path):
    checkpoint = Checkpoint(Gguf().open(directory(tmp_path, EXPERTS, "Q8_0")))
    prefix = "model.layers.1"
    for name in ("self_attn.q_proj.weight", "per_layer_input_gate.weight", "mlp.experts.3.up_proj.weight"):
        assert checkpoint.find(f"{prefix}.{name}").quantised, name
    for name in (
        "layer_scalar",
        "router.scale",
        "router.per_expert_scale",
        "mlp.gate.weight",
        "input_layernorm.weight",
    ):
        assert not checkpoint.find(f"{prefix}.{name}").quantised, name


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (HEADS, [2, 2, 1, 2, 2], "head_count_kv must be the same number in all layers of a kind, at least 1"),
        (HEADS, [2, 0, 2, 2, 0], "head_count_kv must be the same number in all layers of a kind, at least 1"),
        (HEADS, [2, 1, 2, 2, 1], "head_count_kv must be the same number in all layers, since all have values of their"),
        (WIDTH, [320, 320, 320, 640, 320], "feed_forward_length must be the same in all layers, or twice as much in"),
        (WIDTH, [320, 320, 320, 640], "feed_forward_length must be a whole number, or one for each of 5 layers"),
        ("attention.shared_kv_layers", 5, "attention.shared_kv_layers must be a whole number, at most 4; got 5"),
        ("attention.key_length_swa", 2048, "attention.key_length_swa must be at most 1024; got 2048"),
        ("attention.value_length_swa", 64, "attention.value_length_swa must be as attention.key_length_swa, 32; got"),
        ("rope.dimension_count", 32, "rope.dimension_count must be as attention.key_length, 64; got 32"),
        ("rope.dimension_count_swa", 16, "rope.dimension_count_swa must be as attention.key_length_swa, 32; got 16"),
        ("embedding_length_per_layer_input", -1, "embedding_length_per_layer_input must be a whole number, at most"),
    ],
)
def test_what_a_file_cannot_say_is_refused_by_name(tmp_path, monkeypatch, key, value, message):
    add = conversion.add
    signed = lambda writer, name, value: writer.add_int32(name, value) if value == -1 else add(writer, name, value)  # noqa: E731
    monkeypatch.setattr(conversion, "add", signed)
    with pytest.raises(ModelError, match=message):
        read_config(directory(tmp_path, **{key: value}))


@pytest.mark.parametrize(
    "factors",
    [[1.0] * 31, [1.0] * 16 + [2.0] * 16, [1e30] * 32, [1.0, 1e30] * 16, [1e30] * 16 + [1.0] * 16],
    ids=["too few", "other factors", "none", "in turns", "the other half"],
)
def test_factors_that_are_no_part_of_a_head_are_refused(tmp_path, monkeypatch, factors):
    monkeypatch.setattr(conversion.gemma4_conversion, "factors", lambda config: np.array(factors, np.float32))
    with pytest.raises(ModelError, match=r"tensor rope_freqs.weight must be ones and then, .* 1e30: 32 numbers"):
        read_config(directory(tmp_path))


def test_factors_of_one_rotate_whole_heads(tmp_path, monkeypatch):
    monkeypatch.setattr(conversion.gemma4_conversion, "factors", lambda config: np.ones(32, np.float32))
    assert read_config(directory(tmp_path)).rope.partial_rotary_factor == 1.0


def test_a_file_without_factors_is_refused(tmp_path, monkeypatch):
    add_tensor = gguf.GGUFWriter.add_tensor

    def left_out(self, name, *others, **more):
        if name != FREQUENCIES:
            add_tensor(self, name, *others, **more)

    monkeypatch.setattr(gguf.GGUFWriter, "add_tensor", left_out)
    with pytest.raises(ModelError, match=r"tensor rope_freqs.weight is missing: it says which part of a head"):
        read_config(directory(tmp_path))


@pytest.mark.parametrize(("size", "moving"), [(44, 15), (44, 11), (18, 1), (58, 29)])
def test_as_many_numbers_of_a_head_of_any_size_are_rotated(tmp_path, monkeypatch, size, moving):
    factors = np.array([1.0] * moving + [1e30] * (size // 2 - moving), np.float32)
    monkeypatch.setattr(conversion.gemma4_conversion, "factors", lambda config: factors)
    share = read_config(directory(tmp_path, {**DENSE, "global_head_dim": size})).rope.partial_rotary_factor
    assert int(size * share) // 2 == moving


def test_more_heads_than_memory_are_refused_at_once(tmp_path):
    with pytest.raises(ModelError):
        read_config(directory(tmp_path, **{"attention.head_count": (1 << 31) - 1}))


@pytest.mark.parametrize("key", ["expert_count", "attention.sliding_window"])
@pytest.mark.parametrize("value", [[1, 2, 3], [-1, -1]])
def test_lists_where_one_number_belongs_are_refused(tmp_path, key, value):
    with pytest.raises(ModelError, match=rf"gemma4\.{key} must be a whole number"):
        read_config(directory(tmp_path, **{key: value}))


@pytest.mark.parametrize("name", ["ffn_gate_up_exps", "ffn_down_exps"])
def test_experts_that_are_no_stack_are_refused(tmp_path, monkeypatch, name):
    def flat(*asked):
        for each in converted(*asked):
            yield each._replace(numbers=each.numbers.reshape(-1)) if name in each.name else each

    converted = conversion.converted
    monkeypatch.setattr(conversion, "converted", flat)
    with pytest.raises(ModelError, match=rf"{name}.weight must be a stack of matrices, or of rows"):
        Checkpoint(Gguf().open(directory(tmp_path, EXPERTS)))


def test_the_warning_of_unpacked_weights_counts_the_vectors_of_tokens(tmp_path, caplog):
    file = str(written(tmp_path, {**DENSE, "vocab_size_per_layer_input": 20_000}, "Q8_0"))
    model = make_engine(file, plugins=("gguf",), default_plugins=False, dtype="float32").engine.runner.model
    (table,) = model.tables
    assert table.unpacked_bytes == 20_000 * 5 * 32 * 4
    others = sum(each.unpacked_bytes for each in model.projections.values())
    assert f"now take {(table.unpacked_bytes + others) / 2**20:.0f} MiB" in caplog.text
