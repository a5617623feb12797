"""adapter_config.json: what is refused, each with its own words, and what is ignored."""

from __future__ import annotations

import pytest
from adapter_reading import reader_for, refusal

from specserve_lora.adapter_dir import unconfined_dir
from toy_adapters import write_adapter


@pytest.mark.parametrize(("config", "said"), [
    ({"peft_type": "IA3"}, "peft_type must be LORA; got 'IA3'"),
    ({"peft_type": None}, "peft_type must be LORA"),
    ({"use_dora": True}, "use_dora = True cannot be served: DoRA"),
    ({"use_qalora": True}, "use_qalora = True cannot be served"),
    ({"bias": "all"}, "bias = all cannot be served"),
    ({"bias": "lora_only"}, "bias = lora_only"),
    ({"lora_bias": True}, "lora_bias = True"),
    ({"modules_to_save": ["lm_head"]}, "modules_to_save = ['lm_head'] cannot be served"),
    ({"trainable_token_indices": [1, 2]}, "trainable_token_indices = [1, 2]"),
    ({"target_parameters": "mlp.x"}, "target_parameters: must be a list of strings of at most 4096 characters"),
    ({"target_parameters": ["embed_tokens.weight"]}, "target_parameters includes model.embed_tokens, which is not"),
    ({"target_parameters": ["lm_head.weight"]}, "target_parameters includes lm_head, which is not supported"),
    ({"fan_in_fan_out": True}, "fan_in_fan_out"),
    ({"layer_replication": [[0, 1]]}, "layer_replication"),
    ({"alora_invocation_tokens": [3]}, "alora_invocation_tokens"),
    ({"kasa_config": {"a": 1}}, "kasa_config"),
    ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights = pissa_niter_4"),
    ({"r": 0}, "r: must be an integer of at least 1; got 0."),
    ({"r": "8"}, 'r: must be an integer of at least 1; got "8".'),
    ({"r": 65}, "has rank 65, and lora.max_rank allows 64"),
    ({"rank_pattern": {"1.self_attn.q_proj": 99}}, "layers.1.self_attn.q_proj has rank 99, and lora.max_rank allows"),
    ({"lora_alpha": None}, "lora_alpha: must be a number; got null."),
    ({"target_modules": None}, "target_modules: must be a string of at most 4096 characters or a list of strings"),
    ({"target_modules": "q_proj", "layers_to_transform": 1}, "need target_modules to be a list"),
    ({"target_modules": "x" * 5000}, "of at most 4096 characters; got 5000 characters."),
    ({"rank_pattern": {"q_proj": 0}}, 'rank_pattern["q_proj"]: must be an integer of at least 1; got 0.'),
    ({"use_rslora": 3}, "use_rslora: must be true or false; got 3."),
    ({"lora_alpha": 10**400}, "adapter_config.json"),
], ids=str)  # fmt: skip
def test_a_configuration_that_cannot_be_served_is_refused(toy_model, tmp_path, config, said):
    write_adapter(tmp_path, toy_model, targets=["q_proj"], **config)
    assert said in refusal(toy_model, tmp_path)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff{}", b"[" * 10**5, b'{"peft_type": NaN}', b" " * (5 * 2**20)])
def test_a_configuration_that_is_no_json_object_is_refused(toy_model, tmp_path, text):
    write_adapter(tmp_path, toy_model)
    (tmp_path / "adapter_config.json").write_bytes(text)
    assert "adapter_config.json" in refusal(toy_model, tmp_path)


def test_unknown_fields_are_ignored_and_named(toy_model, tmp_path, caplog):
    write_adapter(tmp_path, toy_model, brand_new=True, lora_dropout=0.1, eva_config={"rho": 2})
    assert reader_for(toy_model).read(unconfined_dir(str(tmp_path)))
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.endswith("were ignored: brand_new")
