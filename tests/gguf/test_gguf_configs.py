"""What keys and factors of a file become in config.json, beyond what a converted model of each kind shows."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from conversion import convert

from specserve.api import ModelError
from specserve.models.locate import locate_model
from specserve.models.read_config import read_config
from specserve.models.rope import inverse_frequencies
from specserve_gguf.source import Gguf
from specserve_workbench.testing.toy import write_checkpoint

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def both(tmp_path, family, config, **how):
    """The configuration of a model, and of its file."""
    original = write_checkpoint(tmp_path / "model", architecture=family, **config)
    file = convert(original, tmp_path / "model.gguf", **how)
    return read_config(original), read_config(locate_model(str(file)))


def llama3_factors(config):
    """As llama.cpp's converter has them: the plain frequencies by those of Llama 3's rule."""
    plain = 1.0 / config.rope.rope_theta ** (np.arange(0, 32, 2) / 32)
    return plain / inverse_frequencies(config, 128)[0].double().numpy()


def test_factors_of_frequencies_that_are_llama_3s_are_its_rule(tmp_path):
    config = {"rope_scaling": LLAMA3, "rope_theta": 500_000.0}
    factors = llama3_factors(read_config(write_checkpoint(tmp_path / "first", **config)))
    assert factors.min() == pytest.approx(1)
    assert factors.max() == pytest.approx(8)
    wanted, got = both(tmp_path, "llama", config, factors={"rope_freqs": factors})
    assert got.rope == wanted.rope


def test_other_factors_of_frequencies_divide_them_one_by_one(tmp_path):
    factors = np.linspace(1, 5, 16).astype(np.float32)
    wanted, got = both(tmp_path, "llama", {}, factors={"rope_freqs": factors})
    plain, scale = inverse_frequencies(wanted, 128)
    for length in (128, 2048):
        frequencies, found = inverse_frequencies(got, length)
        torch.testing.assert_close(frequencies, plain / torch.from_numpy(factors))
        assert found == scale == 1.0


def test_phi_3s_long_and_short_factors_are_read_from_their_tensors(tmp_path):
    factors = {"short_factor": [1.0 + i for i in range(16)], "long_factor": [2.0 + i for i in range(16)]}
    scaling = {"rope_type": "longrope", **factors, "original_max_position_embeddings": 512}
    tensors = {"rope_factors_short": factors["short_factor"], "rope_factors_long": factors["long_factor"]}
    wanted, got = both(tmp_path, "phi3", {"rope_scaling": scaling}, factors=tensors)
    assert got.rope == wanted.rope


def test_part_of_a_head_is_rotated_where_the_file_says_so(tmp_path):
    _, got = both(tmp_path, "phi3", {}, extra={"rope.dimension_count": 24})
    assert got.rotary_dim == 24


@pytest.mark.parametrize(
    ("pattern", "windowed"), [(2, [True, False] * 2), ([True, True, False, False], [True, True, False, False])]
)
def test_layers_with_a_window_are_those_of_the_pattern(tmp_path, pattern, windowed):
    config = {"layer_types": None, "num_hidden_layers": 4}
    _, got = both(tmp_path, "gemma3_text", config, extra={"attention.sliding_window_pattern": pattern})
    assert [window is not None for window in got.sliding_windows] == windowed


def test_a_number_for_each_layer_may_be_the_same_in_all(tmp_path):
    _, got = both(tmp_path, "llama", {}, extra={"attention.head_count_kv": [2, 2]})
    assert got.num_kv_heads == 2
    with pytest.raises(ModelError, match=r"llama\.attention\.head_count_kv must be .* the same in all layers"):
        both(tmp_path, "llama", {}, extra={"attention.head_count_kv": [2, 1]})


@pytest.mark.parametrize(
    ("family", "extra", "words"),
    [
        ("llama", {"rope.scaling.type": "su"}, "llama.rope.scaling.type must be none, linear or yarn; got 'su'"),
        ("llama", {"attention.key_length": 1 << 30}, "llama.attention.key_length must be at most 1024"),
        (
            "qwen3_moe",
            {"expert_count": 1 << 30},
            "qwen3moe.expert_count must be a whole number, at most 1024; got 1073741824",
        ),
        ("llama", {"rope.freq_base": -1.0}, "llama.rope.freq_base must be a positive number; got -1.0"),
        ("llama", {"rope.freq_base": "high"}, "llama.rope.freq_base must be a positive number"),
        ("qwen3_moe", {"expert_weights_norm": "yes"}, "qwen3moe.expert_weights_norm must be true or false"),
        ("olmo2", {"attention.sliding_window": 32}, "OLMo 3, the kind of olmo2 with windows, is not read"),
        (
            "gemma3_text",
            {"attention.sliding_window_pattern": "all"},
            "gemma3.attention.sliding_window_pattern must be a",
        ),
    ],
)
def test_a_key_that_means_nothing_known_is_refused(tmp_path, family, extra, words):
    with pytest.raises(ModelError) as caught:
        both(tmp_path, family, {}, extra=extra)
    assert words in str(caught.value)


@pytest.mark.parametrize("factors", [[1.0, float("nan")], [0.0, 1.0], [[1.0, 2.0]], [1.0] * 2048])
def test_factors_that_no_model_has_are_refused(tmp_path, factors):
    with pytest.raises(ModelError, match=r"tensor rope_freqs\.weight must"):
        both(tmp_path, "llama", {}, factors={"rope_freqs": factors})


@pytest.mark.parametrize("name", ["blk.0", "blk", "blk.", "blk.0.", "blk.x.attn_q", "more"])
def test_a_tensor_of_any_name_is_named_where_it_is_not_read(tmp_path, name):
    original = write_checkpoint(tmp_path / "model")
    made = locate_model(str(convert(original, tmp_path / "model.gguf", factors={name: [1.0]})))
    assert len(Gguf().open(made).tensors) == 22


def test_keys_that_nobody_reads_are_named_in_a_warning(tmp_path, caplog):
    original = write_checkpoint(tmp_path / "model")
    extra = {"vocab_size": 320, "expert_weights_scale": 2.5, "new.key": 1}
    made = locate_model(str(convert(original, tmp_path / "model.gguf", extra=extra)))
    with caplog.at_level(logging.WARNING):
        Gguf().open(made)
    assert "not used: llama.expert_weights_scale, llama.new.key. If" in caplog.text
