"""Passes that draft are replayed from the graphs of steps: the same drafts, the same tokens, all passes counted."""

from __future__ import annotations

import msgspec
import pytest
from eagle_engines import write_draft, write_target
from uno_engines import Witness, uno_engine

from draft_adapters import write_draft_adapter
from drafted_requests import assert_answers_are_plain, mixed_requests
from specserve.types import SpeculationParams
from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.toy import write_checkpoint
from toy_adapters import lora_of, lora_options, under, write_adapters


def counted(target, adapter, **options):
    """An engine, and the number of rows of each pass that drafts."""
    engine = uno_engine(target, adapter, planner=Witness(), **options)
    (guard,) = [guard for guard in engine.drafting.guards if guard.name == "uno"]
    passes, rows = guard.drafter.target, []
    logits = passes.logits

    def counting(guessed, adapter=None):
        rows.append(sum(1 + len(each.guesses) for each in guessed))
        return logits(guessed, adapter)

    passes.logits = counting
    return engine, rows


def drafts_of(engine):
    return engine.planner.drafts


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kernels", ["torch", "cpu"])
@pytest.mark.parametrize("graphs", ["full", "piecewise"])
def test_replayed_passes_draft_what_computed_ones_do(uno_target, draft_adapter, graphs, kernels, dtype):
    requests = mixed_requests(12)
    options = {"default_plugins": kernels == "cpu", "dtype": dtype}
    plain, _ = counted(uno_target, draft_adapter, **options)
    engine, rows = counted(uno_target, draft_adapter, graphs=graphs, **options)
    expected = run_requests(plain, requests).decided()
    assert run_requests(engine, requests).decided() == expected
    assert drafts_of(engine) == drafts_of(plain)
    assert len(drafts_of(plain)) > 50
    assert_answers_are_plain(engine, uno_target, requests, **options)
    assert not engine.metrics.drafter_faults
    use = ("piecewise", "attention sdpa has no full graphs") if (kernels, graphs) == ("torch", "full") else (graphs, "")
    assert dict(engine.metrics.graph_draft_passes) == {use: len(rows)}
    assert not plain.metrics.graph_draft_passes


def test_passes_of_more_rows_than_a_graph_has_are_computed_and_say_so(uno_target, draft_adapter):
    requests = mixed_requests(12)
    engine, rows = counted(uno_target, draft_adapter, graphs="full", graph_buckets=(1, 2, 8), default_plugins=True)
    assert_answers_are_plain(engine, uno_target, requests, default_plugins=True)
    found = engine.metrics.graph_draft_passes
    assert found["full", ""] == sum(count <= 8 for count in rows) > 0
    assert found["none", "more rows than the largest bucket, 8"] == sum(count > 8 for count in rows) > 0
    assert found.total() == len(rows)


def test_passes_beside_a_head_leave_the_hidden_states_of_the_step(tmp_path):
    """One drafts for every second request, the other for the others; the head reads hidden states of several steps."""
    target = write_target(tmp_path / "target")
    head = write_draft(tmp_path / "head", "eagle3", target)
    adapter = write_draft_adapter(tmp_path / "adapter", target, uno_config={"mask_token_id": 60, "block_size": 4})
    requests = [
        msgspec.structs.replace(each, speculation=SpeculationParams(drafters=(("uno",), ("eagle",))[i % 2]))
        for i, each in enumerate(mixed_requests(12, vocab_size=64))
    ]
    tables = {"eagle": {"model": str(head), "steps": 3}}
    found = []
    for graphs in ("none", "full"):
        engine, rows = counted(
            target, adapter, beside=("eagle",), plugin_options=tables, graphs=graphs, default_plugins=True,
            no_plugins=("adaptive",),
        )  # fmt: skip
        decided = run_requests(engine, requests).decided()
        assert not engine.metrics.drafter_faults
        assert engine.metrics.graph_draft_passes["full", ""] == (len(rows) if graphs == "full" else 0)
        found.append((decided, drafts_of(engine), dict(engine.metrics.draft_tokens_by_drafter)))
    assert found[0] == found[1]
    assert min(found[0][2].values()) > 50, "of both"


def test_passes_of_requests_with_adapters_of_their_own_are_replayed(uno_target, draft_adapter, tmp_path):
    adapters = write_adapters(tmp_path, uno_target, 3)
    found = []
    for graphs in ("none", "full"):
        engine, rows = counted(
            uno_target, draft_adapter, beside=("lora",), plugin_options=lora_options(adapters), graphs=graphs,
            default_plugins=True,
        )  # fmt: skip
        names = [None, *adapters]
        requests = mixed_requests(12, seed=5)
        requests = under(lora_of(engine), requests, [names[i % len(names)] for i in range(len(requests))])
        decided = run_requests(engine, requests).decided()
        assert engine.metrics.graph_draft_passes["full", ""] == (len(rows) if graphs == "full" else 0)
        found.append((decided, drafts_of(engine)))
    assert found[0] == found[1]


def test_experts_and_short_convolutions_are_replayed_too(tmp_path):
    for architecture in ("qwen3_moe", "lfm2"):
        target = write_checkpoint(tmp_path / architecture, architecture=architecture)
        adapter = write_draft_adapter(tmp_path / f"{architecture}-adapter", target, targets=("q_proj", "v_proj"))
        engine, rows = counted(target, adapter, graphs="full", default_plugins=True)
        assert_answers_are_plain(engine, target, mixed_requests(8, seed=4), default_plugins=True)
        assert engine.metrics.graph_draft_passes.total() == len(rows) > 0
