"""Heads draft for models with a shared expert, and change no token, greedy or sampled, in any batch."""

from __future__ import annotations

import pytest
from eagle_engines import eagle_engine, write_draft, write_target

from specserve_workbench.testing.engines import run, run_requests
from specserve_workbench.testing.requests import varied_requests


@pytest.mark.parametrize("kernels", ["torch", "cpu"])
@pytest.mark.parametrize(("family", "kind"), [
    ("qwen3_5_moe_text", "eagle3"), ("qwen2_moe", "eagle"), ("granitemoeshared", "standalone"),
])  # fmt: skip
def test_drafts_of_heads_change_nothing(tmp_path, family, kind, kernels):
    target = write_target(tmp_path / "target", architecture=family)
    draft = write_draft(tmp_path / "draft", kind, target)
    requests = varied_requests(10, vocab_size=64)
    alone = run(target, requests, max_num_seqs=1, prefix_cache=False, default_plugins=kernels == "cpu").decided()
    engine = eagle_engine(target, draft, max_num_batched_tokens=64, default_plugins=kernels == "cpu")
    drafted = run_requests(engine, requests)
    assert drafted.decided() == alone
    assert drafted.metrics.num_draft_tokens > 100
    assert not drafted.metrics.drafter_faults
