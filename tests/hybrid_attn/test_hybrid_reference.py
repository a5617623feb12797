"""Hybrids against transformers: no code in common but the toy checkpoint."""

from __future__ import annotations

import pytest
import torch
from hybrids import hybrid_engine

from one_pass import next_logits_along
from specserve.types import SamplingParams
from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.reference import reference_generate
from specserve_workbench.testing.requests import toy_request
from specserve_workbench.testing.toy import write_checkpoint


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("settings", [
    {"prefill": "sdpa", "decode": "cpu_paged"},
    {"prefill": "cpu_paged", "decode": "sdpa"},
], ids=lambda s: "-".join(s.values()))  # fmt: skip
@pytest.mark.parametrize(("architecture", "extra"), [("qwen3", {}), ("mistral", {"sliding_window": 48})])
def test_greedy_tokens_are_those_of_transformers(tmp_path, settings, architecture, extra):
    from transformers import AutoModelForCausalLM

    path = write_checkpoint(tmp_path / "model", architecture=architecture, **extra)
    prompts = [list(range(5, 5 + n)) for n in (1, 20, 90)]
    requests = [toy_request(str(i), p, max_tokens=48, ignore_eos=True) for i, p in enumerate(prompts)]
    engine = hybrid_engine(path, settings=settings, max_num_batched_tokens=50).engine
    got = run_requests(engine, requests).tokens()
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    next_logits = next_logits_along(model, *([*prompt, *got[str(i)]] for i, prompt in enumerate(prompts)))
    greedy = SamplingParams(temperature=0.0, max_tokens=48, ignore_eos=True)
    for i, prompt in enumerate(prompts):
        assert got[str(i)] == reference_generate(next_logits, prompt, greedy, ())
