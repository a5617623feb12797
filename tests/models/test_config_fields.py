"""Every field of config.json that transformers reads is used, known to change nothing, or refused by name."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from changed_files import change_json
from naive_forward import forward, load
from transformers import AutoModelForCausalLM
from transformers.models.gemma4 import Gemma4AudioConfig, Gemma4Config, Gemma4VisionConfig
from transformers.models.qwen3_5 import Qwen3_5VisionConfig
from transformers.utils import logging as transformers_logging
from transformers_reads import FAMILIES, SHARED, class_fields, reads, rotary_reads

from specserve.errors import ModelError
from specserve.models.config_fields import FIELDS, KNOWN, ONLY, ROPE_KEYS, unknown_fields
from specserve.models.families import BUILT_IN, family_named
from specserve.models.locate import locate_model
from specserve.models.read_config import parse_config, read_config
from specserve_workbench.testing.toy import DEFAULTS, write_checkpoint

if TYPE_CHECKING:
    from specserve.model_files import RawJson

transformers_logging.disable_progress_bar()
transformers_logging.set_verbosity_error()

DOCS = (Path(__file__).parents[2] / "docs/models.md").read_text(encoding="utf-8")
PROMPT = list(range(5, 45))
SLIDING, FULL = "sliding_attention", "full_attention"
CLASSES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}


OF_IMAGES = {"vision_config", "text_config", "mm_tokens_per_image", "image_token_id", "video_token_id"}
OF_MODULES = {family: {*family_named(family).reads} for family in FAMILIES if not family.endswith("_text")}
OF_VISION = {field.name for field in fields(Qwen3_5VisionConfig)}
OF_VISION |= {field.name for each in (Gemma4AudioConfig, Gemma4VisionConfig, Gemma4Config) for field in fields(each)}
WITH_IMAGES = ("gemma3", "gemma4", "qwen3_5", "qwen3_5_moe")
OF_MODULES |= {name: {*family_named(f"{name}_text").reads} | OF_IMAGES | OF_VISION for name in WITH_IMAGES}
"""The fields that a family alone reads, by transformers' modules."""


class Recording(dict):
    """A config.json that notes which of its keys are asked for."""

    def __init__(self, content: RawJson) -> None:
        super().__init__(content)
        self.asked: set[str] = set()

    def get(self, key, default=None):
        self.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key):
        self.asked.add(key)
        return super().__getitem__(key)

    def __contains__(self, key):
        self.asked.add(key)
        return super().__contains__(key)

    def __or__(self, other):
        joined = Recording(dict(self) | other)
        joined.asked = self.asked
        return joined


@pytest.mark.parametrize("family", FAMILIES)
def test_every_field_of_transformers_class_is_in_a_list(family):
    assert (
        class_fields(family) - KNOWN - ONLY.keys() == {*family_named(family).reads} & class_fields(family) - ONLY.keys()
    )


@pytest.mark.parametrize("source", [*(f"models/{family}/modeling_{family}.py" for family in OF_MODULES), *SHARED])
def test_every_field_that_transformers_code_reads_is_in_a_list(source):
    found = reads(source)
    assert found, "the scan finds nothing any more"
    own = OF_MODULES.get(Path(source).parent.name, set())
    assert found - KNOWN - ONLY.keys() - own == set()


def test_every_rotary_key_that_transformers_code_reads_is_in_a_list():
    assert {"factor", "beta_fast", "rope_type"} <= rotary_reads() <= ROPE_KEYS


def test_the_fields_that_are_said_to_be_used_are_read():
    asked = {"eos_token_id"}  # specserve.text.eos
    for name in CLASSES.values():
        sizes = DEFAULTS | {"architectures": [f"{name}ForCausalLM"], "use_sliding_window": True, "sliding_window": 8}
        raw = Recording(sizes)
        parse_config(raw, {}, where="config.json")
        unnamed = Recording(sizes | {"architectures": None, "model_type": name.lower()})
        parse_config(unnamed, {}, where="config.json")
        asked |= raw.asked | unnamed.asked
    assert asked == set(FIELDS["used"].split())


@pytest.mark.parametrize("family", FAMILIES)
def test_fields_that_are_said_to_be_neutral_change_no_logit_of_transformers(tmp_path, family):
    path = write_checkpoint(tmp_path, architecture=family)
    values = {"attention_dropout": 0.5, "chunk_size_feed_forward": 4, "initializer_range": 0.5, "pad_token_id": 7}
    values |= {"pretraining_tp": 4, "use_cache": False, "add_cross_attention": True, "is_decoder": True}
    change_json(path / "config.json", **values)
    theirs = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    torch.testing.assert_close(forward(load(path), PROMPT), theirs(torch.tensor([PROMPT])).logits[0], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ONLY)
def test_a_field_that_is_not_implemented_is_refused_by_name_beside_its_neutral_values(tmp_path, name):
    path = write_checkpoint(tmp_path)
    for value in ONLY[name]:
        change_json(path / "config.json", **{name: value})
        assert read_config(path).unknown_fields == ()
    change_json(path / "config.json", **{name: not ONLY[name][0] if isinstance(ONLY[name][0], bool) else 17})
    with pytest.raises(ModelError, match=rf"config\.json: {name} = .* is not implemented; allowed: .* or no such key"):
        read_config(path)


WINDOWS = [
    ("llama", {"sliding_window": 16}, "family llama have no windows; got sliding_window 16"),
    ("llama", {"layer_types": [SLIDING, FULL]}, "family llama have no windows"),
    ("mistral", {"layer_types": [SLIDING, FULL], "sliding_window": 8}, "Layers of family mistral have all the same"),
    ("mistral", {"layer_types": [FULL, FULL]}, "layer_types must be 'sliding_attention' for every layer"),
    ("mistral", {"layer_types": [SLIDING, SLIDING], "sliding_window": None}, "must be 'full_attention'"),
    ("qwen2", {"layer_types": [SLIDING, FULL], "sliding_window": 8}, "use_sliding_window and sliding_window give no"),
    ("qwen3", {"layer_types": [FULL]}, "one kind for each of the 2 layers"),
    ("qwen3", {"layer_types": ["linear_attention", FULL]}, "'linear_attention', but use_sliding_window"),
]


@pytest.mark.parametrize(("family", "changes", "message"), WINDOWS)
def test_windows_that_the_family_does_not_have_are_refused(tmp_path, family, changes, message):
    path = write_checkpoint(tmp_path, architecture=family)
    change_json(path / "config.json", **changes)
    with pytest.raises(ModelError, match=message):
        read_config(path)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {"sliding_window": None, "use_sliding_window": False, "max_window_layers": 28}),
        ("llama", {"sliding_window": 2048}),
        ("llama", {"sliding_window": 16, "layer_types": [FULL, FULL]}),
        ("mistral", {"sliding_window": 16, "layer_types": [SLIDING, SLIDING]}),
        ("qwen2", {"sliding_window": 16, "use_sliding_window": False, "layer_types": [FULL, "attention"]}),
    ],
)
def test_windows_that_hide_nothing_are_served_as_transformers_does(tmp_path, family, changes):
    path = write_checkpoint(tmp_path, architecture=family)
    change_json(path / "config.json", **changes)
    theirs = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    torch.testing.assert_close(forward(load(path), PROMPT), theirs(torch.tensor([PROMPT])).logits[0], atol=1e-4, rtol=0)


@pytest.mark.parametrize("family", ["mistral", "qwen2", "qwen3"])
def test_an_absent_number_of_key_heads_is_that_of_transformers_class(tmp_path, family):
    heads = {"mistral": 8}.get(family, 32)
    path = write_checkpoint(tmp_path, architecture=family, num_attention_heads=2 * heads, num_key_value_heads=heads)
    raw = json.loads((path / "config.json").read_text())
    del raw["num_key_value_heads"]
    (path / "config.json").write_text(json.dumps(raw))
    theirs = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    torch.testing.assert_close(forward(load(path), PROMPT), theirs(torch.tensor([PROMPT])).logits[0], atol=1e-4, rtol=0)


def test_the_old_rotary_key_has_priority_as_in_transformers(tmp_path):
    rope = {"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_parameters": {"rope_type": "default"}}
    path = write_checkpoint(tmp_path, **rope)
    theirs = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    torch.testing.assert_close(forward(load(path), PROMPT), theirs(torch.tensor([PROMPT])).logits[0], atol=1e-4, rtol=0)


@pytest.mark.parametrize("model_type", ["qwen2", "mistral", "my_llama"])
def test_a_file_that_names_two_families_is_refused(tmp_path, model_type):
    path = write_checkpoint(tmp_path)
    change_json(path / "config.json", model_type=model_type)
    with pytest.raises(ModelError, match=f"architectures names family llama, model_type '{model_type}'"):
        read_config(path)


def test_fields_that_nobody_reads_are_named_once_when_the_model_is_loaded(tmp_path, caplog):
    path = write_checkpoint(tmp_path)
    change_json(path / "config.json", dual_chunk_attention_config={"a": 1}, mystery=2, _note=3, use_cache=True)
    caplog.set_level(logging.WARNING, "specserve")
    load(path)
    assert caplog.text.count("not used: dual_chunk_attention_config, mystery. transformers' class of family llama") == 1
    assert "_note" not in caplog.text


def test_unknown_rotary_keys_are_named_with_their_place():
    assert unknown_fields({"rope_scaling": {"type": "yarn", "factor": 2, "magic": 1}}, BUILT_IN[0]) == (
        "rope_scaling.magic",
    )
    parameters = {"rope_parameters": {"rope_theta": 5, "magic": 1}}
    assert unknown_fields(parameters, BUILT_IN[0]) == ("rope_parameters.magic",)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"rms_norm_eps": None}, "config.json: rms_norm_eps: must be "),
        ({"tie_word_embeddings": 1}, "config.json: tie_word_embeddings: must be "),
        ({"attention_bias": None}, "config.json: attention_bias: must be "),
        ({"num_hidden_layers": "2"}, "config.json: num_hidden_layers: must be "),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, "config.json: rope_parameters.factor: must be "),
    ],
)
def test_errors_have_the_keys_of_the_file(changes, name):
    with pytest.raises(ModelError, match=re.escape(name)):
        parse_config(DEFAULTS | {"architectures": ["LlamaForCausalLM"]} | changes, {}, where="config.json")


def test_the_documentation_has_the_lists():
    section = DOCS.partition("## Fields of config.json")[2].partition("\n## ")[0]
    for what, names in FIELDS.items():
        assert f"| {what} | {', '.join(f'`{name}`' for name in names.split())} |" in section
    for name in ONLY:
        assert f"`{name}`" in section


@pytest.mark.parametrize("name", ["demo", "demo-standalone"])
def test_the_demo_models_have_no_unknown_field(name):
    assert read_config(locate_model(name)).unknown_fields == ()
