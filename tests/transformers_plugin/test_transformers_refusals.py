"""What cannot be served is refused before weights are read, by architecture, layer and reason."""

from __future__ import annotations

import json

import pytest
import torch
from architectures import REFUSED, SERVED, SIZES, change, write_model
from runs import options_of
from torch import nn

from specserve.errors import ConfigError, ModelError
from specserve_transformers import interface, self_test
from specserve_workbench.testing.engines import make_engine
from specserve_workbench.testing.toy import write_checkpoint
from specserve_workbench.testing.toy_tokenizer import write_tokenizer


def write_config(path, **content):
    """A directory without weights: none are read."""
    write_tokenizer(path)
    (path / "config.json").write_text(json.dumps({**SIZES, **content}))
    return path


def refusal(path, **options):
    with pytest.raises(ModelError) as error:
        make_engine(path, **options_of(), **options)
    return str(error.value)


@pytest.mark.parametrize("name", REFUSED)
def test_an_architecture_is_refused_with_its_reason(tmp_path, name):
    import transformers

    extra, reason = REFUSED[name]
    kind = getattr(transformers, name).config_class.model_type
    message = refusal(write_config(tmp_path, architectures=[name], model_type=kind, **extra))
    assert f"architecture {name}" in message
    assert reason in message
    assert message.endswith("Serve another model, or this one with transformers.")


def test_code_of_the_hub_is_not_run(tmp_path):
    auto = {"AutoModelForCausalLM": "modeling_mine.MineForCausalLM"}
    message = refusal(write_config(tmp_path, architectures=["MineForCausalLM"], model_type="mine", auto_map=auto))
    assert "its code is on the hub (auto_map), which is not run" in message


def test_without_the_plugin_the_error_says_who_may_serve_the_model(tmp_path):
    path = write_config(tmp_path, architectures=["GPTNeoXForCausalLM"], model_type="gpt_neox")
    with pytest.raises(ModelError, match=r"'GPTNeoXForCausalLM' is not supported.*pip install specserve-plugin-transf"):
        make_engine(path)


@pytest.mark.parametrize(("chosen", "kind"), [("unknown", "DecoderModel"), ("all", "TransformersModel")])
def test_families_of_the_engine_stay_its_own_unless_the_option_says_otherwise(tmp_path, chosen, kind):
    path, table = write_checkpoint(tmp_path / "model"), {"transformers": {"architectures": chosen}}
    engine = make_engine(path, plugins=("transformers",), plugin_options=table).engine
    assert type(engine.runner.model).__name__ == kind


def test_a_model_cannot_be_divided_among_processes(tmp_path):
    path = write_model(tmp_path, "GPTNeoXForCausalLM")
    with pytest.raises(ConfigError, match="cannot be divided among processes"):
        make_engine(path, **options_of("torch", "tensor_parallel", tensor_parallel={"ranks": 2}), allow_undeclared=True)


@pytest.mark.parametrize(("asked", "message"), [(4096, "must be between 1 and 512"), (0, "max_model_len")])
def test_a_context_that_the_model_does_not_support_is_refused(tmp_path, asked, message):
    path = write_config(tmp_path, architectures=["GPTNeoXForCausalLM"], model_type="gpt_neox")
    with pytest.raises(ConfigError, match=message):
        make_engine(path, **options_of(), max_model_len=asked)


def test_sinks_that_are_no_parameter_are_refused(tmp_path, monkeypatch):
    attend = interface.attend

    def doubled(*args, s_aux, **settings):
        return attend(*args, s_aux=s_aux * 2, **settings)

    monkeypatch.setattr(interface, "attend", doubled)
    config = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", **SERVED["GptOssForCausalLM"]}
    message = refusal(write_config(tmp_path, **config))
    assert "layer 0 (model.layers.0.self_attn) has sinks (s_aux) of shape [4] that it computes" in message
    assert "GptOssForCausalLM" in message


# --- the promise ----------------------------------------------------------------------------------------


class Mean(nn.Module):
    """Rows meet here."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) + x.mean(1, keepdim=True)


def test_a_module_in_which_rows_meet_is_named(tmp_path, monkeypatch):
    engine = make_engine(write_model(tmp_path, "GPTNeoXForCausalLM"), **options_of("torch")).engine
    model = engine.runner.model
    layer = model.stages.layer_list[1]
    layer._modules["post_attention_layernorm"] = Mean(layer.post_attention_layernorm)
    layer.__dict__.pop("post_attention_layernorm")
    with pytest.raises(ModelError, match=r"rows 0 to 0 have other bits alone .* layers.1.post_attention_layernorm"):
        self_test.check_rows(model.tested)


def test_a_function_that_is_not_known_is_refused_by_name(tmp_path, monkeypatch):
    from transformers.models.gpt_neox import modeling_gpt_neox

    forward = modeling_gpt_neox.GPTNeoXMLP.forward
    monkeypatch.setattr(
        modeling_gpt_neox.GPTNeoXMLP, "forward", lambda self, x: torch.cumsum(forward(self, x), dim=1), raising=True
    )
    message = refusal(write_model(tmp_path / "model", "GPTNeoXForCausalLM"))
    assert "gpt_neox.layers.0.mlp calls cumsum: it is not known to compute rows alone" in message


def test_a_wrong_key_of_config_json_is_named(tmp_path):
    path = write_model(tmp_path, "GPTNeoXForCausalLM")
    change(path, hidden_size="many")
    assert "config.json" in refusal(path)
