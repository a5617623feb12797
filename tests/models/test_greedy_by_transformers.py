"""Greedy texts of 128 tokens of models with layers without attention, or with heads of several sizes: they are those
of transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from covering import covering
from specserve_workbench.testing.engines import make_engine, run_requests, verify_everything
from specserve_workbench.testing.requests import toy_request
from specserve_workbench.testing.toy import write_checkpoint

transformers_logging.disable_progress_bar()
transformers_logging.set_verbosity_error()

LENGTH = 128
PROMPTS = [tuple((11 * i + i * i + 3) % 310 for i in range(length)) for length in (1, 150)]
SIZES: dict[str, dict[str, Any]] = {
    "narrow": {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1},
    "of the toy": {},
    "deep": {"num_hidden_layers": 8},
    "wide": {"hidden_size": 320, "intermediate_size": 512, "num_attention_heads": 10, "num_key_value_heads": 5},
}
LFM3 = ("conv", "sliding_attention", "conv", "full_attention")
KINDS = {
    "lfm2": lambda n: {"full_attn_idxs": list(range(1, n, 3))},
    "lfm3": lambda n: {"layer_types": [LFM3[i % 4] for i in range(n)]},
    "gemma4_text": lambda n: {
        "layer_types": ["sliding_attention", "full_attention"] * (n // 2),
        "num_kv_shared_layers": 0 if n == 2 else n // 2,
    },
    "qwen3_5_text": lambda n: {"full_attention_interval": 2 if n == 2 else 4},
}
"""What the file says of the layers, by their number."""


@pytest.fixture(scope="module")
def model_of(tmp_path_factory):
    def write(family, size):
        sizes = SIZES[size]
        kinds = KINDS[family](sizes.get("num_hidden_layers", 2))
        return write_checkpoint(tmp_path_factory.mktemp("model"), architecture=family, seed=3, **sizes, **kinds)

    return write


@covering(("family", "size"), ("family", "kernels"), family=KINDS, size=SIZES, kernels=["cpu", "torch"])
def test_greedy_texts_are_those_of_transformers(model_of, family, size, kernels):
    path = model_of(family, size)
    oracle = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    engine = make_engine(path, plugins=("ngram", "cpu")[: 1 + (kernels == "cpu")], dtype="float32").engine
    requests = [toy_request(str(n), each, max_tokens=LENGTH, ignore_eos=True) for n, each in enumerate(PROMPTS)]
    ours = run_requests(verify_everything(engine), requests).tokens()
    for n, prompt in enumerate(PROMPTS):
        logits = oracle(torch.tensor([[*prompt, *ours[str(n)]]])).logits[0]
        # Greedy text is where each argmax is the next token: equal at every step, so equal as a whole.
        assert logits[len(prompt) - 1 : -1].argmax(-1).tolist() == ours[str(n)]
        assert len({*ours[str(n)]}) > 8, "the toy's text has collapsed: it would hide mistakes"
