"""transformers reads the files that these tests convert as the models that they were: so the order of rows, the norms
and the names are llama.cpp's."""

from __future__ import annotations

import pytest
import torch
from conversion import convert
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from specserve_workbench.testing.toy import write_checkpoint

transformers_logging.disable_progress_bar()
transformers_logging.set_verbosity_error()

TIED = {"tie_word_embeddings": True}
CASES = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 128},
    "gemma2": {"layer_types": None, "query_pre_attn_scalar": 32, "attn_logit_softcapping": 50.0, **TIED},
    "gemma3_text": {"layer_types": None, "query_pre_attn_scalar": 32, "num_hidden_layers": 6, **TIED},
    "lfm2": {"num_hidden_layers": 3, **TIED},
    "qwen3_moe": {"head_dim": 128, "moe_intermediate_size": 768},
}
"""Whose files transformers reads, without what it does not read of them."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("family", CASES)
def test_transformers_finds_the_same_tensors_in_the_converted_file(tmp_path, family):
    original = write_checkpoint(tmp_path / "model", architecture=family, **CASES[family])
    file = convert(original, tmp_path / "model.gguf")
    wanted = AutoModelForCausalLM.from_pretrained(original, dtype=torch.float32).state_dict()
    got = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=file.name, dtype=torch.float32).state_dict()
    assert got.keys() == wanted.keys()
    for name, numbers in wanted.items():
        torch.testing.assert_close(got[name], numbers, rtol=0, atol=1e-6, msg=name)
