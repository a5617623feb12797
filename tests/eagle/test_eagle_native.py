"""A native pass of a draft model and the same pass piece by piece: the same drafts, estimates and keys, bit for bit."""

from __future__ import annotations

import pytest
import torch
from eagle_engines import (
    TREE_KINDS,
    Recorder,
    draft_kv,
    drafter_of,
    eagle_engine,
    runtime_of,
    write_draft,
    write_target,
)

from covering import covering
from specserve.batch.drafts import parents_of
from specserve.protocols import DrafterNeeds, DraftPass
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_workbench.testing.drafters import ScriptedDrafter
from specserve_workbench.testing.engines import drafter_plugin
from specserve_workbench.testing.requests import toy_request

OPTIONS = {"default_plugins": True, "block_size": 4, "max_num_batched_tokens": 24}


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


def requests_of_all_sorts():
    """The last one has a processor; where it is in a batch, no pass is native."""
    for i in range(6):
        params = {"temperature": (0.0, 0.7, 1.0)[i % 3], "seed": i, "top_k": (0, 9)[i % 2]}
        yield toy_request(f"{i}", range(i, 9 * i + 4), max_tokens=12 + 3 * i, ignore_eos=True, **params)
    yield toy_request("processed", range(7), max_tokens=15, min_tokens=9)


class Reader(ScriptedDrafter):
    """Reads more layers than a draft model does, and drafts nothing."""

    name = "drafter"
    needs = DrafterNeeds(hidden_layers=(0, 1, -1))

    def draft(self, request, limit):
        return None


class Drafts(Recorder):
    """With shapes and estimates."""

    def choose(self, requests, budget, base_rows):
        chosen = super().choose(requests, budget, base_rows)
        for request in requests:
            if request.draft is not None:
                draft = request.draft
                self.drafts[request.id, len(request.tokens)] = (draft.tokens, draft.parents, draft.survival)
        return chosen


class PassByPass(DraftPass):
    """Native passes, none of which goes on by itself."""

    def __init__(self, passes):
        self.passes = passes

    def step(self, *arguments, from_target):
        return self.passes.step(*arguments, from_target=from_target)


HOW = {"chains": lambda passes: passes, "passes": PassByPass, "pieces": lambda passes: passes.pieces}


def serve(target, draft, settings, *, how, dtype, **options):
    """All drafts, and the keys and values of each request before its last steps."""
    recorder = Drafts(verifies=True)
    engine = eagle_engine(target, draft, planner=recorder, settings=settings, dtype=dtype, **OPTIONS, **options)
    drafter = drafter_of(engine)
    assert hasattr(drafter.passes, "pieces"), "the pass is native"
    drafter.passes = HOW[how](drafter.passes)
    for request in requests_of_all_sorts():
        engine.add(request)
    snapshots = {}
    while engine.has_work:
        engine.step()
        for name, sequence in runtime_of(engine).sequences.items():
            if sequence.num_fed > 1:
                snapshots[name, len(sequence.request.tokens)] = draft_kv(engine, sequence)
    assert not engine.metrics.drafter_faults
    return recorder.drafts, snapshots


@pytest.mark.parametrize("kind", TREE_KINDS)
def test_a_drafter_that_reads_other_layers_changes_no_draft(tmp_path, target, kind):
    """The columns of one layer among several are not contiguous."""
    draft, beside = write_draft(tmp_path / "draft", kind, target), {"drafter": drafter_plugin(lambda: Reader({}))}
    asked = (target, draft, {"steps": 3})
    alone, _ = serve(*asked, how="chains", dtype="bfloat16")
    found, _ = serve(*asked, how="chains", dtype="bfloat16", extra=beside, allow_undeclared=True)
    both = found.keys() & alone.keys()  # of several drafters, the later ones are asked where that is expected to pay
    assert len(both) > 20
    assert {place: found[place] for place in both} == {place: alone[place] for place in both}


@covering(
    ("kind", "settings"), ("kind", "dtype"), ("settings", "dtype"),
    kind=TREE_KINDS, settings=[{"steps": 3}, {"steps": 3, "topk": 3}], dtype=["float32", "bfloat16"],
)  # fmt: skip
def test_native_passes_draft_what_their_pieces_draft(tmp_path, target, kind, settings, dtype):
    draft = write_draft(tmp_path / "draft", kind, target)
    expected_drafts, expected_keys = serve(target, draft, settings, how="pieces", dtype=dtype)
    for how in ("chains", "passes"):
        drafts, keys = serve(target, draft, settings, how=how, dtype=dtype)
        assert len(drafts) > 20
        assert drafts == expected_drafts
        assert keys.keys() == expected_keys.keys()
        for place, kv in keys.items():
            assert torch.equal(kv.data, expected_keys[place].data), place
            assert kv.states is None or torch.equal(kv.states, expected_keys[place].states), place


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    ("settings", "tells"), [({"steps": 3}, True), ({"steps": 3, "topk": 2}, True), ({"steps": 1}, False)]
)
def test_it_tells_what_a_pass_after_the_first_takes(tmp_path, target, settings, tells, how):
    draft = write_draft(tmp_path / "draft", "eagle3", target)
    engine = eagle_engine(target, draft, planner=FixedWidthPlanner(32), settings=settings, **OPTIONS)
    drafter = drafter_of(engine)
    drafter.passes = HOW[how](drafter.passes)
    seen = []
    propose = drafter.propose

    def watched(batch, output, verdict, limits):
        drafts = propose(batch, output, verdict, limits)
        deep = any(draft is not None and max(parents_of(draft)) >= 0 for draft in drafts)
        seen.append((deep, drafter.pass_seconds))
        return drafts

    drafter.propose = watched
    for request in requests_of_all_sorts():
        engine.add(request)
    while engine.has_work:
        engine.step()
    assert any(deep for deep, _ in seen) == tells
    assert all((seconds > 0.0) == deep for deep, seconds in seen)
