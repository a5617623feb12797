"""What the files of Qwen3.5 say of their recurrent layers, and what is refused by name."""

from __future__ import annotations

import pytest

from specserve.errors import ModelError
from specserve.models.families.qwen3_5 import Qwen35
from specserve.models.read_config import parse_config, read_config
from specserve_workbench.testing.engines import make_engine
from specserve_workbench.testing.toy import DEFAULTS, write_checkpoint


def config_of(**changes):
    return parse_config(DEFAULTS | {"model_type": Qwen35.name} | Qwen35.toy | changes, {}, where="config.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"linear_num_key_heads": 0}, "config.json: linear_num_key_heads must be a whole number, at least 1; got 0"),
        ({"linear_conv_kernel_dim": True}, "linear_conv_kernel_dim must be a whole number, at least 1; got True"),
        (
            {"linear_num_value_heads": 3},
            r"linear_num_value_heads \(3\) must be a multiple of linear_num_key",
        ),
        ({"full_attention_interval": 0}, "full_attention_interval must be a number of layers; got 0"),
        ({"full_attention_interval": 9}, "layer_types must name full_attention for at least one layer"),
        ({"layer_types": ["linear_attention"]}, "for each of the 2 layers"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes, message):
    with pytest.raises(ModelError, match=message):
        config_of(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attn_output_gate": False}, "attn_output_gate must be True; got False"),
        ({"mamba_ssm_dtype": "bfloat16"}, "mamba_ssm_dtype must be 'float32'; got 'bfloat16'"),
        ({"sliding_window": 40}, "sliding_window must be null for qwen3_5_text; got 40"),
    ],
)
def test_what_transformers_would_not_compute_is_refused(tmp_path, changes, message):
    path = write_checkpoint(tmp_path, architecture="qwen3_5_text", **changes)
    with pytest.raises(ModelError, match=message):
        read_config(path)


def test_only_layers_with_attention_have_keys_and_only_the_others_a_state():
    config = config_of(num_hidden_layers=8, full_attention_interval=4)
    assert config.attention_layers == (3, 7)
    assert len(config.recurrent) == 6
    assert config.token_widths == ()
    (net,) = {*config.recurrent}
    assert net.state_size(128) == 4 * 16 * 8 + 3 * (2 * 2 * 16 + 4 * 8)


def test_a_draft_model_with_recurrent_layers_is_refused(tmp_path, toy_model):
    draft = write_checkpoint(tmp_path, architecture="qwen3_5_text")
    options = {"plugins": ("eagle",), "plugin_options": {"eagle": {"model": str(draft)}}}
    with pytest.raises(ModelError, match="must have no recurrent layers, and family qwen3_5_text has some"):
        make_engine(toy_model, **options)
