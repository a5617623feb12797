"""Passes over guesses: what they write, where, and what becomes of faults."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from uno_engines import uno_engine

from draft_adapters import BLOCK
from drafted_requests import mixed_requests
from specserve.engine.target_pass import check_target
from specserve.errors import ConfigError, PluginError
from specserve.faults import BadAnswerError
from specserve.kv.slots import slots_of
from specserve.models.part import ModelPart
from specserve.protocols import Drafter, DrafterNeeds, GuessedRows
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request
from specserve_workbench.testing.toy import write_checkpoint


class Guessing(Drafter):
    """Computes the same guesses for every request, and drafts nothing. Looks at the cache before and after."""

    name = "guessing"
    needs = DrafterNeeds(target_rows=9)

    def __init__(self) -> None:
        self.logits: dict[tuple[str, int], torch.Tensor] = {}
        self.changed: list[set[int]] = []
        self.allowed: list[set[int]] = []
        self.cache = None

    def connect_target(self, target):
        self.target = target

    def propose(self, batch, output, verdict, limits):
        assert any(limits), "it states nothing that it would read of other steps"
        requests = [span.request for span, limit in zip(batch.spans, limits, strict=True) if limit]
        before, (logits_before, hidden) = self.cache.data.clone(), (output.logits.clone(), output.hidden)
        logits = self.target.logits([GuessedRows(request, range(3, 11)) for request in requests])
        self.changed.append(slots_that_differ(before, self.cache.data))
        self.allowed.append({slot for request in requests for slot in self.slots_behind(request)})
        assert torch.equal(output.logits, logits_before)
        assert output.hidden is hidden
        for i, request in enumerate(requests):
            self.logits[request.id, len(request.tokens)] = logits[9 * i].clone()
        return [None] * len(limits)

    def slots_behind(self, request):
        """Its own, and those of no request."""
        size = self.cache.block_size
        own = slots_of(request.blocks, range(request.computed, len(request.blocks) * size), size)
        return [*own, *range(self.cache.num_blocks * size, len(self.cache.slots[0][0]))]


def slots_that_differ(before, after):
    return set((before != after).flatten(3).any(-1).any(0).any(0).nonzero().flatten().tolist())


@pytest.mark.parametrize("block_size", [1, 16])
@pytest.mark.parametrize("kernels", ["torch", "cpu"])
def test_nothing_is_written_but_behind_what_is_computed(uno_target, kernels, block_size):
    """sdpa keeps slots one by one, whatever the kernels."""
    drafter = Guessing()
    engine = make_engine(
        uno_target, drafter, default_plugins=kernels == "cpu", attention="sdpa", block_size=block_size, kv_memory="2M"
    ).engine
    drafter.cache = engine.parts.cache
    requests = mixed_requests(12)
    run = run_requests(engine, requests)
    assert not run.metrics.drafter_faults
    assert len(drafter.changed) > 30
    assert all(changed <= allowed for changed, allowed in zip(drafter.changed, drafter.allowed, strict=True))
    scratch = drafter.cache.num_blocks * block_size
    behind = {slot >= scratch for changed in drafter.changed for slot in changed}
    assert behind == ({True} if block_size == 1 else {False, True}), "slots of the request, where it has any left"


@pytest.mark.parametrize("default_plugins", [False, True])
def test_the_last_tokens_logits_are_those_of_the_next_step(uno_target, default_plugins):
    requests = [toy_request(f"r{i}", range(1 + i, 9 + 7 * i), max_tokens=12, ignore_eos=True) for i in range(5)]
    drafter = Guessing()
    engine = make_engine(uno_target, drafter, default_plugins=default_plugins).engine
    drafter.cache, seen, forward = engine.parts.cache, {}, engine.runner.forward

    def watched(batch):
        output = forward(batch)
        for span, first in zip(batch.spans, batch.scored_offsets, strict=True):
            if span.scored:
                seen[span.request_id, span.start + span.length] = output.logits[first].clone()
        return output

    engine.runner.forward = watched
    run_requests(engine, requests)
    assert len(drafter.logits) == 5 * 10, "none is wanted before the last token"
    assert all(torch.equal(logits, seen[key]) for key, logits in drafter.logits.items())


class Failing(Guessing):
    def propose(self, batch, output, verdict, limits):
        raise RuntimeError("a pass failed")


def test_a_pass_that_fails_costs_drafts_and_no_request(uno_target):
    requests = mixed_requests(8)
    run = run_requests(make_engine(uno_target, Failing()).engine, requests)
    assert run.decided() == plain_run(uno_target, requests).decided()
    assert run.metrics.drafters_disabled == {"guessing"}


def test_recurrent_layers_are_refused_by_the_drafters_name(tmp_path):
    target = write_checkpoint(tmp_path / "target", architecture="qwen3_5_text")
    with pytest.raises(ConfigError, match=r"drafter guessing .* and 1 of this model's are recurrent"):
        make_engine(target, Guessing())


def cache_of(target, adapter=None, **options):
    options = {"max_num_seqs": 8, "block_size": 1, "kv_memory": "1M"} | options
    if adapter is None:
        return make_engine(target, **options).engine.parts.cache
    return uno_engine(target, adapter, **options).parts.cache


def num_scratch(cache):
    return len(cache.blocks[0][0]) - cache.num_blocks


def test_blocks_and_logits_of_guesses_are_within_the_memory(uno_target, draft_adapter):
    plain, whole = cache_of(uno_target), cache_of(uno_target, draft_adapter)
    logits = 8 * BLOCK * TOY_VOCAB * 4
    assert num_scratch(whole) == 8 * BLOCK
    assert whole.data.nbytes + logits <= 2**20
    per_block = plain.data.nbytes // plain.num_blocks
    assert plain.num_blocks - whole.num_blocks == 8 * BLOCK + -(-logits // per_block)
    said = "bytes for draft tokens.* a smaller --max-draft-tokens, --max-num-batched-tokens"
    with pytest.raises(ConfigError, match=rf"at least two blocks of \d+ bytes, and \d+ {said}"):
        cache_of(uno_target, draft_adapter, kv_memory="100K", max_num_seqs=64)


def test_memory_is_for_no_more_draft_tokens_than_the_engine_takes(uno_target, draft_adapter):
    assert num_scratch(cache_of(uno_target, draft_adapter, max_draft_tokens=2)) == 8 * 2
    assert num_scratch(cache_of(uno_target, draft_adapter, max_draft_tokens=BLOCK + 9)) == 8 * BLOCK
    none = cache_of(uno_target, draft_adapter, max_draft_tokens=0)
    assert (num_scratch(none), none.num_blocks) == (0, cache_of(uno_target).num_blocks)


def test_memory_is_for_a_pass_of_no_more_rows_than_a_step_has(uno_target, draft_adapter):
    assert num_scratch(cache_of(uno_target, draft_adapter, max_num_batched_tokens=5 * BLOCK - 1)) == 4 * BLOCK
    assert num_scratch(cache_of(uno_target, draft_adapter, max_num_batched_tokens=BLOCK - 1)) == BLOCK


@pytest.mark.parametrize(("requests", "guesses"), [(1, 9), (9, 0)])
def test_a_larger_pass_than_there_is_memory_for_is_refused(uno_target, requests, guesses):
    drafter = Guessing()
    make_engine(uno_target, drafter, max_num_seqs=8)
    request = toy_request("r", (1, 2))
    with pytest.raises(BadAnswerError, match="a larger pass of the target than it may") as raised:
        drafter.target.logits([GuessedRows(request, range(1, 1 + guesses))] * requests)
    assert f"got {requests} requests with up to {1 + guesses} rows each; allowed are 8 " in raised.value.detail


@pytest.mark.parametrize(("rows", "said"), [("9", "must be a int"), (-1, "must be at least 0; got -1")])
def test_a_number_of_rows_that_is_none_is_refused(uno_target, rows, said):
    class Wrong(Guessing):
        needs = DrafterNeeds(target_rows=rows)

    with pytest.raises(PluginError, match=f"the target rows that its drafter needs {said}"):
        make_engine(uno_target, Wrong())


def test_a_model_that_several_processes_compute_drafts_for_nobody():
    parts = SimpleNamespace(recurrent=(), part=ModelPart())
    check_target(parts, [])
    with pytest.raises(ConfigError, match=r"drafter guessing .* several processes have parts of each"):
        check_target(parts, [Guessing()])
