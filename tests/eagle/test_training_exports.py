"""What training writes is what the public formats ask for, and is read back to the same logits."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from training_cases import KINDS, LAYERS, VOCAB, make_head, stream, write_target
from transformers import AutoModelForCausalLM, AutoTokenizer

from specserve.errors import ConfigError
from specserve.models.read_config import read_config
from specserve_eagle.block.config import read_block_config
from specserve_eagle.checkpoints import draft_ids, kind_of, open_head, read_head_config
from specserve_eagle.training.block_heads import BlockShape
from specserve_eagle.training.evaluate import step_logits
from specserve_eagle.training.export import export
from specserve_eagle.training.reopen import reopen
from specserve_eagle.training.standalone import draft_logits
from specserve_eagle.training.target import Target

HEADS = ("eagle3", "eagle", "mtp")
IDS = stream(40).view(2, 20)
LAYER = (
    *(f"self_attn.{part}_proj.weight" for part in "qkvo"),
    *(f"mlp.{part}_proj.weight" for part in ("gate", "up", "down")),
    "post_attention_layernorm.weight",
)
NAMES = {
    "eagle3": {"fc.weight", "norm.weight", "lm_head.weight", "d2t", "t2d"}
    | {f"midlayer.{name}" for name in (*LAYER, "input_layernorm.weight", "hidden_norm.weight")},
    "eagle": {"fc.weight", "fc.bias"} | {f"layers.0.{name}" for name in LAYER},
    "mtp": {
        *(f"model.layers.{LAYERS}.{name}" for name in (*LAYER, "input_layernorm.weight")),
        *(f"model.layers.{LAYERS}.{name}.weight" for name in ("enorm", "hnorm", "eh_proj", "shared_head.norm")),
    },
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
ROTATIONS = {
    "default": {"rope_theta": 5e4},
    "old": {"rope_scaling": LLAMA3 | {"rope_type": "llama3"}},
    "new": {"rope_theta": None, "rope_parameters": LLAMA3 | {"rope_type": "llama3", "rope_theta": 5e4}},
}


@pytest.fixture(scope="module")
def target_dir(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def target(target_dir):
    return Target.load(target_dir, "cpu")


def rounded(module):
    """As it is written: in bfloat16."""
    return module.to(torch.bfloat16).float()


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_has_the_tensors_of_its_public_format(target, tmp_path, kind):
    export(make_head(kind, target), target.files, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert set(tensors) == NAMES[kind]
    kinds = {name: tensor.dtype for name, tensor in tensors.items() if tensor.dtype != torch.bfloat16}
    assert kinds == ({"d2t": torch.int64, "t2d": torch.bool} if kind == "eagle3" else {})
    if kind == "eagle":
        assert not tensors["fc.bias"].any()
    assert not list(tmp_path.glob("*.partial"))


READ_ELSEWHERE = {
    "eagle3": {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 60, "target_hidden_size": 32},
    "dflash": {"architectures": ["DFlashDraftModel"], "block_size": 4},
    "dspark": {"architectures": ["Qwen3DSparkModel"], "block_size": 3, "markov_head_type": "vanilla"},
}
"""Without these keys other engines do not load a head, or load it as one of another kind."""


@pytest.mark.parametrize("kind", READ_ELSEWHERE)
def test_a_head_names_what_other_engines_read(target, tmp_path, kind):
    export(make_head(kind, target, **({"draft_vocab": 60} if kind == "eagle3" else {})), target.files, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    layers = 1 if kind == "eagle3" else 2
    wanted = READ_ELSEWHERE[kind] | {"vocab_size": VOCAB, "num_hidden_layers": layers, "head_dim": 8}
    assert {key: config.get(key) for key in wanted} == wanted


def test_the_tables_of_a_draft_vocabulary_lead_to_the_targets_tokens(target, tmp_path):
    head = make_head("eagle3", target, draft_vocab=60)
    export(head, target.files, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert [i + offset for i, offset in enumerate(tensors["d2t"].tolist())] == head.draft_ids.tolist()
    assert tensors["t2d"].nonzero().flatten().tolist() == head.draft_ids.tolist()
    assert len(tensors["t2d"]) == VOCAB


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("rotation", ROTATIONS.values(), ids=ROTATIONS)
def test_a_written_head_is_opened_with_the_numbers_it_was_made_with(tmp_path, kind, rotation):
    path = write_target(tmp_path / "target", **rotation)
    head = make_head(kind, target := Target.load(path, "cpu"), intermediate_size=40)
    (tmp_path / "head").mkdir()
    export(head, target.files, tmp_path / "head")
    config = read_head_config(tmp_path / "head", target.config)
    assert kind_of(tmp_path / "head") == config.kind == kind
    assert (config.hidden_size, config.intermediate_size, config.num_heads, config.head_dim) == (32, 40, 4, 8)
    assert (config.rope, config.max_position_embeddings) == (target.config.rope, target.config.max_position_embeddings)
    checkpoint = open_head(tmp_path / "head", config)
    ids = draft_ids(checkpoint, config)
    assert ids is None if head.draft_ids is None else ids.tolist() == head.draft_ids.tolist()


@pytest.mark.parametrize("kind", ["dflash", "dspark"])
@pytest.mark.parametrize("rotation", ROTATIONS.values(), ids=ROTATIONS)
def test_a_written_block_head_is_opened_with_the_numbers_it_was_made_with(tmp_path, kind, rotation):
    path = write_target(tmp_path / "target", **rotation)
    head = make_head(kind, target := Target.load(path, "cpu"), intermediate_size=40)
    (tmp_path / "head").mkdir()
    export(head, target.files, tmp_path / "head")
    config = read_block_config(tmp_path / "head", target.config)
    assert kind_of(tmp_path / "head") == "block"
    assert BlockShape.of(config) == head.shape
    assert (config.layers.rope, config.layers.rotary_dim) == (target.config.rope, target.config.rotary_dim)
    assert config.mask_token == int(head.mask_token)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_reopened_draft_model_gives_the_same_logits(target, tmp_path, kind):
    module = make_head(kind, target)
    export(module, target.files, tmp_path)
    again, features = reopen(tmp_path, target), target.features(IDS, tuple(range(LAYERS)))
    both = zip(*(step_logits(m, target, features, IDS, 3) for m in (again, rounded(module))), strict=True)
    assert all(torch.equal(a, b) for a, b in both)


def as_text_part(path):
    """The target as a model that also reads images has it."""
    raw = json.loads((path / "config.json").read_text())
    outer = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": raw}
    (path / "config.json").write_text(json.dumps(outer))
    tensors = load_file(path / "model.safetensors")
    named = {f"language_model.{name}": tensor for name, tensor in tensors.items()}
    save_file(named, path / "model.safetensors", metadata={"format": "pt"})
    return path


OTHER_TARGETS = {
    "a part of each head rotated": lambda path: write_target(path, architecture="phi3", partial_rotary_factor=0.5),
    "a scaled rotation": lambda path: write_target(path, rope_scaling={"rope_type": "dynamic", "factor": 2.0}),
    "a text part": lambda path: as_text_part(
        write_target(path, architecture="gemma3_text", layer_types=["sliding_attention"] * LAYERS)
    ),
}


@pytest.mark.parametrize("kind", ["eagle3", "eagle", "mtp", "dspark", "standalone"])
@pytest.mark.parametrize("write", OTHER_TARGETS.values(), ids=OTHER_TARGETS)
@torch.no_grad()
def test_a_head_of_a_target_that_differs_from_a_llama_is_read_back(tmp_path, write, kind):
    path = write(tmp_path / "target")
    target, head = Target.load(path, "cpu"), tmp_path / "head"
    module = make_head(kind, target)
    head.mkdir()
    export(module, target.files, head)
    config = json.loads((head / "config.json").read_text())
    assert (config["vocab_size"], config["max_position_embeddings"]) == (VOCAB, target.config.max_position_embeddings)
    features = target.features(IDS, tuple(range(LAYERS)))
    both = (step_logits(each, target, features, IDS, 3) for each in (reopen(head, target), rounded(module)))
    assert all(torch.equal(a, b) for a, b in zip(*both, strict=True))


@pytest.mark.parametrize("untied", [False, True])
@torch.no_grad()
def test_a_stand_alone_model_is_one_that_transformers_loads(target, tmp_path, untied):
    model = make_head("standalone", target, layers=3, hidden_size=16, untied=untied)
    export(model, target.files, tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    torch.testing.assert_close(theirs(IDS).logits, draft_logits(rounded(model), target, IDS), atol=1e-4, rtol=1e-4)
    assert read_config(tmp_path).tied is not untied
    assert AutoTokenizer.from_pretrained(tmp_path)("def add").input_ids


@torch.no_grad()
def test_a_stand_alone_model_is_one_that_the_core_loads(target, tmp_path):
    model = make_head("standalone", target)
    export(model, target.files, tmp_path)
    loaded = Target.load(tmp_path, "cpu", "float32").features(IDS, ())
    torch.testing.assert_close(loaded.logits, draft_logits(rounded(model), target, IDS), atol=1e-4, rtol=1e-4)


def test_an_eagle3_config_says_what_other_engines_read(target, tmp_path):
    export(make_head("eagle3", target), target.files, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    expected = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "vocab_size": VOCAB,
        "draft_vocab_size": 100,
        "target_hidden_size": 32,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "hidden_act": "silu",
    }
    assert {name: config.get(name) for name in expected} == expected
    assert "eagle_aux_hidden_state_layer_ids" not in str(config)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"norm_output": True}, "a norm of the hidden state that it feeds back"),
        ({"fc_norm": True}, "norms of the target's hidden states"),
    ],
)
def test_what_only_eagle_3_1_has_is_not_evaluated_as_if_it_were_not_there(target, tmp_path, options, what):
    head = make_head("eagle3", target)
    export(head, target.files, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | options))
    if "fc_norm" in options:
        tensors = load_file(tmp_path / "model.safetensors")
        norms = {f"fc_norm.{i}.weight": torch.ones(config["target_hidden_size"]) for i in range(3)}
        save_file(tensors | norms, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match=f"the head has {what}, which teacher-forced evaluation does not know"):
        reopen(tmp_path, target)
