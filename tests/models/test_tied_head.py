"""Where config.json ties the output head and the file has another one, the file decides, as in transformers."""

from __future__ import annotations

import json
import logging

import pytest
import torch
from changed_files import change_tensors
from naive_forward import forward, load
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from compressed_checkpoints import write_compressed
from specserve.models.safetensors_header import INDEX, SINGLE
from specserve_workbench.testing.toy import write_checkpoint

transformers_logging.disable_progress_bar()
transformers_logging.set_verbosity_error()

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
PROMPT = list(range(5, 45))
OTHER = torch.randn(320, 128, generator=torch.Generator().manual_seed(1)) / 11


def tied(path, **options):
    return write_checkpoint(path, tie_word_embeddings=True, **options)


def transformers_logits(path):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    return model(torch.tensor([PROMPT])).logits[0]


def assert_as_transformers(path):
    ours = forward(load(path), PROMPT)
    torch.testing.assert_close(ours, transformers_logits(path), atol=1e-4, rtol=0)
    return ours


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3"])
def test_another_head_in_the_file_is_used(tmp_path, caplog, architecture):
    path = tied(tmp_path, architecture=architecture)
    before = forward(load(path), PROMPT)
    caplog.set_level(logging.WARNING, "specserve")
    after = assert_as_transformers(change_tensors(path, **{HEAD: OTHER}))
    assert not torch.allclose(before, after, atol=0.1)
    assert "tie_word_embeddings, but lm_head.weight is not the embedding" in caplog.text


def test_a_head_that_is_the_embedding_stays_tied_in_silence(tmp_path, caplog):
    path = tied(tmp_path)
    change_tensors(path, **{HEAD: load_file(path / SINGLE)[EMBEDDING].clone()})
    caplog.set_level(logging.WARNING, "specserve")
    model = load(path)
    assert model.projections["lm_head"].weight is model.embedding
    assert caplog.text == ""


def test_one_number_of_the_last_row_makes_another_head(tmp_path):
    path = tied(tmp_path)
    head = load_file(path / SINGLE)[EMBEDDING].clone()
    head[-1, -1] += 1
    assert_as_transformers(change_tensors(path, **{HEAD: head}))
    model = load(path)
    assert torch.equal(model.projections["lm_head"].weight, head)


def test_heads_that_are_equal_in_the_served_dtype_are_tied(tmp_path):
    path = tied(tmp_path)
    embedding = load_file(path / SINGLE)[EMBEDDING].bfloat16().float()
    change_tensors(path, **{EMBEDDING: embedding, HEAD: embedding * (1 + 1e-5)})
    rounded, exact = load(path, dtype="bfloat16"), load(path)
    assert rounded.projections["lm_head"].weight is rounded.embedding
    assert exact.projections["lm_head"].weight is not exact.embedding


def test_a_file_that_holds_the_head_alone_has_the_embedding_in_it(tmp_path):
    path = tied(tmp_path)
    embedding = load_file(path / SINGLE)[EMBEDDING]
    assert_as_transformers(change_tensors(path, **{HEAD: embedding, EMBEDDING: None}))
    model = load(path)
    assert torch.equal(model.embedding, embedding)
    assert model.projections["lm_head"].weight is model.embedding


@pytest.mark.parametrize("is_listed", [True, False], ids=["listed", "not in the index"])
def test_shards_may_hold_another_head(tmp_path, is_listed):
    path = tied(tmp_path, shards=3)
    file = "model-00002-of-00003.safetensors"
    save_file(load_file(path / file) | {HEAD: OTHER}, path / file, metadata={"format": "pt"})
    if is_listed:
        index = json.loads((path / INDEX).read_text())
        index["weight_map"][HEAD] = file
        (path / INDEX).write_text(json.dumps(index))
    assert_as_transformers(path)
    assert torch.equal(load(path).projections["lm_head"].weight, OTHER)


@pytest.mark.parametrize("kind", ["pack-quantized", "int-quantized"])
@pytest.mark.parametrize("leave", [("lm_head",), ()], ids=["plain head", "quantised head"])
def test_a_quantised_checkpoint_may_hold_another_head(tmp_path, kind, leave):
    untied = write_checkpoint(tmp_path / "source")
    path = write_compressed(untied, tmp_path / "compressed", kind=kind, leave=leave)
    expected = forward(load(path), PROMPT)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    assert torch.equal(forward(load(path), PROMPT), expected)
