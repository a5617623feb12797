"""A file that others made: SmolLM2-135M-Instruct in 4 bits, served as it is. tests/smollm2 compares it with
transformers."""

from __future__ import annotations

from pathlib import Path

import pytest

from specserve.models.locate import locate_model
from specserve.text.tokenizer import HfTokenizer
from specserve_workbench.testing.engines import accepted, run
from specserve_workbench.testing.requests import toy_request

FILE = Path(__file__).parents[2] / "build" / "SmolLM2-135M-Instruct.Q4_1.gguf"
NUM_TOKENS = 24
CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
TEXTS = {
    "a question": CHAT.format("What is the capital of France?"),
    "a function": "def is_prime(n):\n    ",
    "a list": "1. red\n2. green\n3. blue\n4. red\n5. green\n6.",
}


@pytest.fixture(scope="module")
def prompts():
    assert FILE.exists(), f"`make build/{FILE.name}` downloads the file that is tested"
    tokenizer = HfTokenizer.from_dir(locate_model(str(FILE)))
    return {name: tokenizer.encode(text) for name, text in TEXTS.items()}


def greedy(prompts):
    return [toy_request(name, ids, max_tokens=NUM_TOKENS, ignore_eos=True) for name, ids in prompts.items()]


def test_drafts_change_nothing_with_the_native_kernels_on_the_integers(prompts):
    requests, options = greedy(prompts), {"dtype": "bfloat16", "kv_memory": "512M"}
    plain = run(str(FILE), requests, plugins=("gguf", "cpu"), max_num_seqs=1, **options)
    drafted = run(str(FILE), requests, plugins=("gguf", "cpu", "ngram"), **options)
    assert drafted.decided() == plain.decided()
    assert accepted(drafted)[0] > 0


def test_a_warning_says_what_unpacked_weights_take(prompts, caplog):
    run(str(FILE), greedy(prompts)[:1], plugins=("gguf",), dtype="bfloat16", kv_memory="512M")
    said = [record.getMessage() for record in caplog.records if "unpack weights of few bits" in record.getMessage()]
    assert len(said) == 1
    assert "256 MiB" in said[0]  # 134.5 million numbers of 16 bits
