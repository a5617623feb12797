"""What the files of LFM2 say of their convolutions, and what is refused by name."""

from __future__ import annotations

import pytest

from specserve.errors import ModelError
from specserve.models.families.lfm2 import Lfm2
from specserve.models.read_config import parse_config
from specserve_workbench.testing.toy import DEFAULTS


def config_of(**changes):
    return parse_config(DEFAULTS | {"model_type": "lfm2"} | Lfm2.toy | changes, {}, where="config.json")


@pytest.mark.parametrize(
    ("changes", "width"),
    [
        ({"block_auto_adjust_ff_dim": False}, 320),
        ({"block_ff_dim": 6656, "block_multiple_of": 256}, 4608),
        ({"block_ff_dim": 480, "block_ffn_dim_multiplier": 1.5, "block_multiple_of": 7}, 483),
        ({"block_ff_dim": 481, "block_ffn_dim_multiplier": None}, 320),
    ],
)
def test_the_width_of_the_mlp_is_adjusted_as_the_file_says(changes, width):
    assert config_of(**changes).intermediate_size == width


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"conv_L_cache": 0}, "config.json: conv_L_cache must be a number of tokens, 1 to 64; got 0"),
        ({"conv_L_cache": 65}, "1 to 64; got 65"),
        ({"conv_L_cache": "3"}, "got '3'"),
        ({"layer_types": ["conv", "conv"]}, "layer_types must name full_attention for at least one layer"),
        ({"layer_types": ["conv"]}, "layer_types must name conv or full_attention for each of the 2 layers"),
        ({"layer_types": ["conv", "mamba"]}, r"got \['conv', 'mamba'\]"),
        ({"full_attn_idxs": []}, "layer_types must name full_attention for at least one layer"),
        ({"full_attn_idxs": 1}, "full_attn_idxs must be a list of layers; got 1"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes, message):
    with pytest.raises(ModelError, match=message):
        config_of(**changes)


def test_only_layers_with_attention_have_keys():
    config = config_of(num_hidden_layers=5, full_attn_idxs=[1, 4])
    assert config.attention_layers == (1, 4)
    assert config.token_widths == (128, 128, 128)
