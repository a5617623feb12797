"""Models that read images, too: their text part is that of transformers, whatever the names of its tensors."""

from __future__ import annotations

import json
import logging

import pytest
import torch
from naive_forward import forward, load
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText, Gemma3Config, Mistral3Config

from covering import pairwise
from specserve.errors import ModelError
from specserve.models.decoder import DecoderModel
from specserve.models.locate import locate_model
from specserve.models.read_config import read_config
from specserve.text.tokenizer import HfTokenizer
from specserve_workbench.testing.engines import make_engine, run
from specserve_workbench.testing.requests import varied_requests
from specserve_workbench.testing.toy import DEFAULTS, write_checkpoint

PROMPT = [(11 * i + 3) % 300 for i in range(60)]
SIZES = {key: DEFAULTS[key] for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 512}
VISION = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
VISION |= {"image_size": 28, "patch_size": 14}
KINDS = ["sliding_attention", "full_attention"]
ROPE = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 16.0, "original_max_position_embeddings": 16}
TEXTS = {
    "gemma3_text": {"sliding_window": 24, "layer_types": KINDS, "query_pre_attn_scalar": 20},
    "mistral": {"sliding_window": None, "tie_word_embeddings": False},
    "ministral3": {"rope_parameters": ROPE | {"llama_4_scaling_beta": 0.4}},
    "ministral": {"sliding_window": 24, "layer_types": KINDS},
}
NAMES = {
    "as transformers writes them": {},
    "of older files": {"model.language_model.": "language_model.model.", "lm_head.": "language_model.lm_head."},
    "without model": {"language_model.model.": "model.language_model.", "model.language_model.": "language_model."},
    "of newer files": {"language_model.model.": "model.language_model.", "language_model.lm_head.": "lm_head."},
}


def write(path, kind, *, tied=True, **changes):
    """A random model of transformers, saved by it, with the tokenizer of a toy."""
    text = {"model_type": kind, **SIZES, **TEXTS[kind], "tie_word_embeddings": tied}
    vision = VISION | {"model_type": "siglip_vision_model" if kind == "gemma3_text" else "pixtral"}
    made = Gemma3Config if kind == "gemma3_text" else Mistral3Config
    more = {"mm_tokens_per_image": 4} if kind == "gemma3_text" else {}
    config = made(text_config=text, vision_config=vision, tie_word_embeddings=tied, **more)
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        parameter.data.mul_(3)
    model.save_pretrained(path)
    donor = write_checkpoint(path.parent / "donor")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (path / name).write_bytes((donor / name).read_bytes())
    rewrite(path, **changes)
    return path, model


def rewrite(path, **changes):
    file = path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def rename(path, names):
    file = path / "model.safetensors"
    tensors = load_file(file)
    for old, new in names.items():
        tensors = {new + name.removeprefix(old) if name.startswith(old) else name: t for name, t in tensors.items()}
    save_file(tensors, file, metadata={"format": "pt"})


@pairwise(kind=TEXTS, tied=[True, False], names=NAMES)
def test_logits_are_those_of_transformers(tmp_path, kind, tied, names):
    path, theirs = write(tmp_path / "model", kind, tied=tied)
    rename(path, NAMES[names])
    with torch.inference_mode():
        expected = theirs(input_ids=torch.tensor([PROMPT])).logits[0]
    torch.testing.assert_close(forward(load(path), PROMPT), expected, atol=2e-4, rtol=0)


def test_one_line_says_what_is_not_read(tmp_path, caplog):
    path, _ = write(tmp_path / "model", "gemma3_text")
    with caplog.at_level(logging.WARNING, logger="specserve"):
        load(path)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "the text part of a model that also reads images is served; image input is not" in line
    assert "of multi_modal_projector" in line
    assert "of vision_tower" in line


def test_an_unknown_tensor_within_the_text_part_is_still_refused(tmp_path):
    path, _ = write(tmp_path / "model", "mistral")
    file = path / "model.safetensors"
    prefix = next(name for name in load_file(file) if name.endswith("layers.0.mlp.up_proj.weight"))
    name = prefix.replace("mlp.up_proj.weight", "self_attn.sinks")
    save_file(load_file(file) | {name: torch.ones(4)}, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"model\.layers\.0\.self_attn\.sinks would change what the model computes"):
        load(path)


def test_the_engine_serves_the_text_part(tmp_path):
    path, _ = write(tmp_path / "model", "ministral3")
    requests = varied_requests(6)
    one = run(path, requests, max_num_seqs=1, dtype="float32")
    assert make_engine(path, dtype="float32").engine.runner.model.config.is_part
    assert run(path, requests, dtype="float32", max_num_batched_tokens=17).decided() == one.decided()
    assert any(one.tokens().values())


def test_the_text_part_is_a_familys_where_transformers_is_installed_too(tmp_path):
    path, _ = write(tmp_path / "model", "ministral3")
    model = make_engine(path, plugins=("transformers",), dtype="float32").engine.runner.model
    assert type(model) is DecoderModel
    assert model.config.is_part


@pytest.mark.parametrize("names", NAMES)
def test_a_block_that_drafts_beside_the_text_part_makes_no_draft_head_of_it(tmp_path, names):
    path, _ = write(tmp_path / "model", "ministral3")
    rename(path, NAMES[names])
    file = path / "model.safetensors"
    save_file(load_file(file) | {"mtp.fc.weight": torch.ones(4)}, file, metadata={"format": "pt"})
    assert locate_model(str(path)) == path


def test_absent_numbers_of_a_gemma_3_are_its_classes_own(tmp_path):
    """As the published files of 4 billion parameters have it."""
    path, _ = write(tmp_path / "model", "gemma3_text")
    raw = json.loads((path / "config.json").read_text())
    keys = ("vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings")
    rewrite(path, text_config={key: value for key, value in raw["text_config"].items() if key not in keys})
    config = read_config(path)
    assert (config.vocab_size, config.num_heads, config.num_kv_heads, config.head_dim) == (262_208, 8, 4, 256)
    assert config.max_position_embeddings == 131_072


def test_ends_of_text_are_found_in_either_part(tmp_path):
    path, _ = write(tmp_path / "model", "mistral")
    (path / "generation_config.json").unlink(missing_ok=True)
    inner = json.loads((path / "config.json").read_text())["text_config"]
    rewrite(path, eos_token_id=None, text_config={**inner, "eos_token_id": 7})
    assert HfTokenizer.from_dir(path).eos_token_ids == (7,)
    rewrite(path, eos_token_id=[9, 5000])
    assert HfTokenizer.from_dir(path).eos_token_ids == (9,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"text_config": {**SIZES, "model_type": "qwen2"}},
            r"its text part of type 'qwen2' is not served\. Text parts",
        ),
        (
            {"architectures": ["Idefics3ForConditionalGeneration"]},
            r"Idefics3ForConditionalGeneration also reads .* served of Mistral3ForConditionalGeneration \(mistral",
        ),
        ({"text_config": {**SIZES, "model_type": "mistral", "use_mrope": True}}, "use_mrope = True is not implemented"),
    ],
    ids=["another text part", "another class", "a field of the text part"],
)
def test_what_is_not_served_is_named(tmp_path, changes, message):
    path, _ = write(tmp_path / "model", "mistral", **changes)
    with pytest.raises(ModelError, match=message):
        read_config(locate_model(str(path)))
