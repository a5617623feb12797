"""Masks of long prompts are bounded: in calls of fewer tiles, and made anew where a plan cannot keep them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from specserve.attention import sdpa
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests
from specserve_workbench.testing.toy import write_checkpoint


def with_logprobs(count):
    return [replace(r, params=replace(r.params, logprobs=2)) for r in varied_requests(count, seed=5)]


@pytest.mark.parametrize("mask_bytes", [1, 50_000])
@pytest.mark.parametrize("architecture", ["llama", "mistral"])
def test_smaller_calls_and_masks_that_are_not_kept_change_nothing(tmp_path, monkeypatch, architecture, mask_bytes):
    window = {"sliding_window": 24} if architecture == "mistral" else {}
    model, requests = write_checkpoint(tmp_path / "m", architecture=architecture, **window), with_logprobs(10)
    expected = run(model, requests).decided()
    sizes = []
    mask_of = sdpa.SdpaAttention.mask

    def measured(self, call, window):
        mask = mask_of(self, call, window)
        sizes.append((mask.nbytes, len(call.seen)))
        return mask

    monkeypatch.setattr(sdpa, "MASK_BYTES", mask_bytes)
    monkeypatch.setattr(sdpa.SdpaAttention, "mask", measured)
    drafter = NoisyDrafter(
        {name: answer[0] for name, answer in expected.items()}, p=0.7, max_width=6, vocab_size=TOY_VOCAB
    )
    assert run_requests(make_engine(model, drafter).engine, requests).decided() == expected
    assert max(tiles for _, tiles in sizes) > (1 if mask_bytes > 1 else 0)
    assert all(size <= mask_bytes or tiles == 1 for size, tiles in sizes)


def test_a_plan_keeps_no_more_than_it_may(toy_model, monkeypatch):
    engine = make_engine(toy_model, max_num_batched_tokens=512, max_num_seqs=64).engine
    attention = engine.runner.attention
    monkeypatch.setattr(sdpa, "MASK_BYTES", 60_000)
    plans, plan = [], attention.plan
    monkeypatch.setattr(attention, "plan", lambda batch: plans.append(plan(batch)) or plans[-1])
    for request in varied_requests(40):
        engine.check(request)
        engine.add(request)
    for _ in range(4):
        engine.step()
    kept = [sum(m.nbytes for g in plan.gathers for c in g.calls for m in c.masks.values()) for plan in plans]
    assert 0 < max(kept) <= 60_000
    assert any(not call.masks for plan in plans for gather in plan.gathers for call in gather.calls)
