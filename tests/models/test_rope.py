"""Rotary tables: every scaling type against transformers' own formulas, fixed once, in either spelling."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from specserve.errors import ModelError
from specserve.models.read_config import parse_config
from specserve.models.rope import inverse_frequencies, rotary_table, supported_length
from specserve.models.served_length import resolve_length
from specserve_workbench.testing.toy import DEFAULTS

LENGTH = 128
FACTORS = {"short_factor": [1.0 + i / 8 for i in range(16)], "long_factor": [2.0 + i for i in range(16)]}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
CASES = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": LLAMA3 | {"original_max_position_embeddings": 64},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    "yarn-attention-factor": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 0.8},
    "yarn-mscale": {"rope_type": "yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 0.3},
    "yarn-untruncated": {"rope_type": "yarn", "factor": 4.0, "truncate": False, "beta_fast": 16.0, "beta_slow": 2.0},
}


def config_of(rope=None, **changes):
    raw = DEFAULTS | {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": LENGTH}
    return parse_config(raw | ({"rope_scaling": rope} if rope else {}) | changes, {}, where="config.json")


def reference_config(rope):
    return LlamaConfig(
        hidden_size=128,
        num_attention_heads=4,
        head_dim=32,
        max_position_embeddings=LENGTH,
        rope_parameters={"rope_theta": 10000.0} | rope,
    )


@pytest.mark.parametrize("case", CASES)
def test_the_table_is_that_of_transformers(case):
    cos, sin = LlamaRotaryEmbedding(reference_config(CASES[case]))(torch.zeros(1), torch.arange(LENGTH)[None])
    ours = rotary_table(config_of(CASES[case]), LENGTH)
    signs = torch.cat((-torch.ones(16), torch.ones(16)))
    torch.testing.assert_close(ours.cos[:, 0], cos[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.sin[:, 0], sin[0] * signs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("served", [LENGTH, 2 * LENGTH, 4 * LENGTH])
def test_dynamic_is_fixed_by_the_served_length(served):
    rope = {"rope_type": "dynamic", "factor": 4.0}
    theirs, scale = ROPE_INIT_FUNCTIONS["dynamic"](reference_config(rope), torch.device("cpu"), seq_len=served)
    ours, our_scale = inverse_frequencies(config_of(rope), served)
    torch.testing.assert_close(ours, theirs)
    assert our_scale == scale == 1.0


@pytest.mark.parametrize("served", [32, 33, LENGTH])
def test_longrope_is_fixed_by_the_served_length(served):
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 32, **FACTORS}
    theirs, scale = ROPE_INIT_FUNCTIONS["longrope"](reference_config(rope), torch.device("cpu"), seq_len=served)
    ours, our_scale = inverse_frequencies(config_of(rope), served)
    torch.testing.assert_close(ours, theirs)
    assert our_scale == pytest.approx(scale)


def test_a_table_does_not_depend_on_how_much_of_it_is_used():
    long, short = rotary_table(config_of(CASES["yarn"]), LENGTH), rotary_table(config_of(CASES["yarn"]), 20)
    assert torch.equal(long.cos[:20], short.cos)


def test_both_spellings_mean_the_same():
    old = config_of(LLAMA3 | {"original_max_position_embeddings": 64}, rope_theta=5000.0)
    new = config_of(
        rope_theta=None,
        rope_parameters=LLAMA3 | {"original_max_position_embeddings": 64, "rope_theta": 5000.0},
    )
    assert old.rope == new.rope
    assert config_of({"type": "linear", "factor": 2.0}).rope == config_of({"rope_type": "linear", "factor": 2}).rope


def test_a_pretraining_length_outside_the_rotary_settings_counts():
    rope = {"rope_type": "longrope", **FACTORS}
    assert config_of(rope, original_max_position_embeddings=32).rope.original_max_position_embeddings == 32


def test_tables_are_float32_whatever_the_model_is():
    table = rotary_table(config_of(torch_dtype="bfloat16"), LENGTH)
    assert table.cos.dtype == table.sin.dtype == torch.float32
    assert table.cos.shape == (LENGTH, 1, 32)


HALVES = {name: factors[:8] for name, factors in FACTORS.items()}


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("rope_type", ["linear", "dynamic", "llama3", "yarn", "longrope"])
def test_a_scaled_rotation_of_a_part_of_a_head_has_the_frequencies_of_transformers(rope_type, inside):
    rope, partial = LLAMA3 | HALVES | {"rope_type": rope_type, "factor": 2.0}, {"partial_rotary_factor": 0.5}
    rope["original_max_position_embeddings"] = 64
    ours = config_of(rope | partial) if inside else config_of(rope, **partial)
    length = ROPE_INIT_FUNCTIONS[rope_type](reference_config(rope | partial), torch.device("cpu"), seq_len=LENGTH)
    torch.testing.assert_close(inverse_frequencies(ours, LENGTH)[0], length[0])
    assert rotary_table(ours, LENGTH).cos.shape == (LENGTH, 1, 16)


def test_a_part_of_a_head_means_nothing_beside_the_default_rotation():
    assert config_of(partial_rotary_factor=0.5).rope == config_of().rope


@pytest.mark.parametrize(
    ("rope", "longest"),
    [
        (None, LENGTH),
        ({"type": "linear", "factor": 4.0}, 4 * LENGTH),
        ({"type": "dynamic", "factor": 2.0}, 2 * LENGTH),
        ({"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32}, 256),
        (LLAMA3, LENGTH),
        ({"type": "longrope", "original_max_position_embeddings": 32, **FACTORS}, LENGTH),
    ],
)
def test_the_supported_length_follows_the_scaling(rope, longest):
    assert supported_length(config_of(rope)) == longest


def test_the_default_length_is_bounded_and_more_than_the_model_has_is_refused():
    assert resolve_length(config_of(max_position_embeddings=131072), None) == 32768
    assert resolve_length(config_of(max_position_embeddings=131072), 131072) == 131072
    for length in (LENGTH + 1, 0):
        with pytest.raises(ModelError, match=f"between 1 and {LENGTH}.*got {length}"):
            resolve_length(config_of(), length)


@pytest.mark.parametrize(
    ("rope", "message"),
    [
        ({"type": "mrope"}, "'mrope' is not supported. Supported: default, linear"),
        ({"type": "linear"}, "'linear' needs 'factor'"),
        ({"type": "linear", "factor": -2.0}, "must be positive"),
        ({"type": "longrope", "factor": 2.0}, "needs 'short_factor'"),
        ({"type": "yarn", "factor": "four"}, "factor"),
        ({"full_attention": {"rope_type": "default"}}, "differ by layer type"),
        ([1], "differ by layer type"),
    ],
)
def test_a_rotation_that_is_not_understood_is_refused(rope, message):
    with pytest.raises(ModelError, match=message):
        config_of(rope)


def test_longrope_with_the_wrong_number_of_factors_is_refused():
    rope = {"type": "longrope", "original_max_position_embeddings": 32, **FACTORS, "long_factor": [1.0]}
    with pytest.raises(ModelError, match="long_factor must have 16 numbers; got 1"):
        rotary_table(config_of(rope), LENGTH)
