"""A block head's native call and the same passes piece by piece: the same drafts and keys; what the call refuses."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
import torch
from eagle_engines import drafter_of, eagle_engine, write_draft, write_target
from examined_passes import changed, serve_examined
from test_eagle_native import OPTIONS, Drafts, requests_of_all_sorts, serve
from toy_block_heads import ALL_FORMS, BLOCK, RANK, random_block_head, write_block_head
from toy_heads import H, V

from covering import covering
from specserve.protocols import BlockPass
from specserve_cpu import _native
from specserve_cpu.dlpack import dlpack
from specserve_workbench.testing.requests import toy_request


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


@covering(
    ("form", "dtype"), ("form", "is_causal"), ("form", "topk"), ("topk", "dtype"),
    form=ALL_FORMS, dtype=["float32", "bfloat16"], is_causal=[False, True], topk=[1, 3],
)  # fmt: skip
def test_the_native_call_drafts_what_its_pieces_draft(tmp_path, target, form, dtype, is_causal, topk):
    head, settings = write_block_head(tmp_path / "head", form, causal=is_causal), {"steps": 16, "topk": topk}
    expected, expected_keys = serve(target, head, settings, how="pieces", dtype=dtype)
    drafts, keys = serve(target, head, settings, how="chains", dtype=dtype)
    assert len(drafts) > 20
    assert {place: draft[:2] for place, draft in drafts.items()} == {p: draft[:2] for p, draft in expected.items()}
    for place, (_, _, survival) in drafts.items():
        assert survival == pytest.approx(expected[place][2], rel=1e-5)
    assert keys.keys() == expected_keys.keys()
    for place, kv in keys.items():
        assert torch.equal(kv.data, expected_keys[place].data), place


def test_a_confidence_head_that_reads_no_token_says_what_its_pieces_say(tmp_path, target):
    tensors = random_block_head("dspark")
    name = "confidence_head.proj.weight"
    head = write_block_head(
        tmp_path / "head", "dspark", tensors | {name: tensors[name][:, :-RANK]}, confidence_head_with_markov=False
    )
    expected, _ = serve(target, head, {"steps": 16}, how="pieces", dtype="float32")
    drafts, _ = serve(target, head, {"steps": 16}, how="chains", dtype="float32")
    assert drafts.keys() == expected.keys()
    for place, draft in drafts.items():
        assert draft[0] == expected[place][0]
        assert draft[2] == pytest.approx(expected[place][2], rel=1e-5)


@pytest.mark.parametrize("form", ALL_FORMS)
def test_a_draft_does_not_depend_on_the_requests_beside_it(tmp_path, target, form):
    head = write_block_head(tmp_path / "head", form)
    together, _ = serve(target, head, {"steps": 16}, how="chains", dtype="bfloat16")
    for request in list(requests_of_all_sorts())[:3]:
        recorder = Drafts(verifies=True)
        engine = eagle_engine(target, head, planner=recorder, steps=16, dtype="bfloat16", **OPTIONS)
        engine.add(request)
        while engine.has_work:
            engine.step()
        both = recorder.drafts.keys() & together.keys()
        assert len(both) > 2
        for place in both:
            n = min(len(draft[0]) for draft in (recorder.drafts[place], together[place]))
            assert [part[:n] for part in recorder.drafts[place] if part] == [
                part[:n] for part in together[place] if part
            ]


def served_with_a_penalty(target, head, wrap=lambda passes: passes):
    """All drafts of some requests, of which "penalty" has a processor."""
    recorder = Drafts(verifies=True)
    engine = eagle_engine(target, head, planner=recorder, steps=16, dtype="float32", **OPTIONS)
    drafter = drafter_of(engine)
    drafter.passes = wrap(drafter.passes)
    penalty = toy_request("penalty", range(9), max_tokens=20, presence_penalty=1.5, ignore_eos=True)
    for request in (*list(requests_of_all_sorts())[:3], penalty):
        engine.add(request)
    while engine.has_work:
        engine.step()
    assert not engine.metrics.drafter_faults
    return recorder.drafts


def test_only_blocks_of_requests_with_processors_go_to_the_pieces(tmp_path, target):
    head, seen = write_block_head(tmp_path / "head", "dspark"), []

    def watched(passes):
        draft = passes.pieces.draft

        def watch(committed, hidden, blocks, requests, wanted):
            seen.append([request.id for request in requests])
            return draft(committed, hidden, blocks, requests, wanted)

        passes.pieces.draft = watch
        return passes

    drafts = served_with_a_penalty(target, head, watched)
    assert len(seen) > 2
    assert all(names == ["penalty"] for names in seen)
    expected = served_with_a_penalty(target, head, lambda passes: passes.pieces)
    assert {place: draft[0] for place, draft in drafts.items()} == {p: draft[0] for p, draft in expected.items()}
    assert {name for name, _ in drafts} >= {"0", "1", "penalty"}


@pytest.mark.parametrize("kind", ["dspark", "eagle3"])
def test_draft_tokens_that_the_target_does_not_have_are_refused_when_the_head_is_made(tmp_path, target, kind):
    """Later passes read their embeddings, and a Markov head their entries."""
    head = write_block_head(tmp_path, "speculators") if kind == "dspark" else write_draft(tmp_path, kind, target)
    drafter = drafter_of(eagle_engine(target, head, **OPTIONS))
    resources, sound = drafter.runtime.resources, drafter.model.head
    fuse = resources.kernels.fuse_blocks if kind == "dspark" else resources.kernels.fuse_draft
    broken = replace(sound, vocabulary=sound.vocabulary._replace(ids=sound.vocabulary.ids + V))
    with pytest.raises(ValueError, match="draft token must be in"):
        fuse(broken, drafter.passes.pieces, resources.attention)


class Examined(BlockPass):
    """A native pass; `examine(native, arguments)` is called before it drafts, with what it is about to be given."""

    def __init__(self, passes, examine):
        self.passes, self.examine, self.num_calls = passes, examine, 0

    def step(self, *arguments, from_target):
        return self.passes.step(*arguments, from_target=from_target)

    def draft(self, *arguments):
        self.num_calls += 1
        self.examine(self.passes.native, lambda: self.passes.arguments(*arguments))
        return self.passes.draft(*arguments)


HIDDEN, POSITIONS, IDS, FIRSTS, WANTED, TARGETS = 0, 1, 3, 7, 8, 10
"""Their places among the arguments."""


def with_edit(arguments):
    arguments[TARGETS].forbid(array("q", [1]))


CASES = {
    "too few blocks": (changed(WANTED, lambda wanted: wanted[1:]), "firsts and wanted must be of each block"),
    "no blocks": (lambda arguments: arguments.__setitem__(slice(FIRSTS, WANTED + 1), [[], []]), "of each block"),
    "no draft token": (changed(WANTED, lambda wanted: [0, *wanted[1:]]), "block 0 from row 0 has no 0 rows"),
    "more than a block": (changed(WANTED, lambda wanted: [*wanted[:-1], 9]), "has no 9 rows that propose"),
    "a row before the first": (changed(FIRSTS, lambda firsts: [-1, *firsts[1:]]), "block 0 from row -1"),
    "no target row": (changed(TARGETS, lambda _: _native.TargetRows()), "targets must be of each block"),
    "an edit": (with_edit, "blocks take no edits"),
    "narrow hidden states": (changed(HIDDEN, lambda _: dlpack(torch.zeros(2, 3))), "hidden"),
    "positions of other rows": (changed(POSITIONS, lambda _: dlpack(torch.zeros(99, dtype=torch.int64))), "positions"),
    "an unknown token": (changed(IDS, lambda _: dlpack(torch.full((2 * BLOCK,), 999))), "token must be in"),
    "rows beyond the plan": (changed(IDS, lambda _: dlpack(torch.zeros(99, dtype=torch.int64))), "the plan is for"),
}


@pytest.mark.parametrize("case", CASES)
def test_arguments_that_do_not_fit_are_refused(tmp_path, target, case):
    change, message = CASES[case]

    def examine(native, arguments):
        broken = arguments()
        change(broken)
        with pytest.raises((ValueError, IndexError), match=message):
            native.draft(*broken)

    head = write_block_head(tmp_path / "head", "dspark")
    serve_examined(target, head, lambda passes: Examined(passes, examine), steps=16)


def test_rows_that_do_not_fit_their_blocks_are_refused():
    plan = _native.AttentionPlan(4, 16)
    plan.add_together(5, 3, [0, 1])
    assert plan.num_rows == 3
    for start, length, blocks in ((6, 3, [0, 1]), (-1, 3, [0, 1]), (0, 0, [0]), (0, 1, [-1])):
        with pytest.raises(ValueError, match="do not fit their"):
            plan.add_together(start, length, blocks)
    assert plan.num_rows == 3


class ExaminedRows(Examined):
    """One that drafts trees."""

    def rows(self, *arguments):
        self.num_calls += 1
        self.examine(self.passes.native, lambda: self.passes.inputs(*arguments))
        return self.passes.rows(*arguments)


OUTPUTS = {
    "logits of too few rows": (lambda n, D, H: (torch.empty(n - 1, D), None), "logits"),
    "logits of other tokens": (lambda n, D, H: (torch.empty(n, D + 1), None), "logits"),
    "logits of another dtype": (lambda n, D, H: (torch.empty(n, D, dtype=torch.bfloat16), None), "logits"),
    "states of too few rows": (lambda n, D, H: (torch.empty(n, D), torch.empty(n - 1, H)), "states"),
    "wide states": (lambda n, D, H: (torch.empty(n, D), torch.empty(n, H + 1)), "states"),
}


@pytest.mark.parametrize("case", OUTPUTS)
def test_outputs_that_do_not_fit_are_refused(tmp_path, target, case):
    make, message = OUTPUTS[case]

    def examine(native, inputs):
        given = inputs()
        outputs = make(sum(given[WANTED]), V, H)
        with pytest.raises(ValueError, match=message):
            native.rows(*given, *(None if output is None else dlpack(output) for output in outputs))

    head = write_block_head(tmp_path / "head", "dspark")
    serve_examined(target, head, lambda passes: ExaminedRows(passes, examine), steps=16, topk=3)


@pytest.mark.parametrize("form", ["dspark", "speculators"])
def test_rows_of_the_native_call_have_the_bits_of_their_pieces(tmp_path, target, form):
    seen = []

    class Both(ExaminedRows):
        def rows(self, *arguments):
            made, expected = super().rows(*arguments), self.passes.pieces.rows(*arguments)
            assert torch.equal(made.logits, expected.logits)
            assert (made.states is None) == (expected.states is None) == (form == "speculators")
            assert made.states is None or torch.equal(made.states, expected.states)
            seen.append(len(made.logits))
            return made

    head = write_block_head(tmp_path / "head", form)
    serve_examined(target, head, lambda passes: Both(passes, lambda native, inputs: None), steps=16, topk=3)
    assert len(set(seen)) > 2
