"""The benchmark of recurrent models: the steps that it times, and what it says of their times."""

from __future__ import annotations

import pytest
from benchmarks.cases import state
from benchmarks.lib.recurrent_steps import Step
from benchmarks.lib.shapes import ATTENTION, SHAPES, SHORT_CONVS

from specserve.batch.state_runs import state_runs

SAMPLES = {
    f"served, {state.A_STEP}": [2.0, 2.0, 9.0],
    f"served, {state.VERIFY}": [2.5, 2.5, 9.0],
    "served, a prompt": [100.0],
    "mixers, a prompt": [2.0],
    state.REJECTED: [5.5, 9.5, 7.0],
    state.NEVER: [5.0, 9.0, 5.0],
    f"{SHORT_CONVS}, plain": [2.0],
    f"{SHORT_CONVS}, accepted": [0.5],
    f"{SHORT_CONVS}, edit": [1.0],
    f"{ATTENTION[SHORT_CONVS]}, plain": [3.0],
    f"{ATTENTION[SHORT_CONVS]}, accepted": [0.6],
    f"{ATTENTION[SHORT_CONVS]}, edit": [1.2],
}


def test_a_step_of_drafts_has_a_row_for_each_and_its_committed_token_in_place() -> None:
    batch = Step(2, drafted=7).batch(500)
    assert batch.num_rows == 16
    for order, run in enumerate(state_runs(batch)):
        assert (run.known, run.parents) == (1, (-1, 0, 1, 2, 3, 4, 5))
        assert run.states.position == 499
        assert (run.states.source, run.states.target) == (2 * order + 1, 2 * order + 2)
    assert not set(batch.spans[0].blocks) & set(batch.spans[1].blocks)


def test_the_step_behind_it_reads_what_it_wrote_and_follows_accepted_drafts() -> None:
    first, behind = (state_runs(step.batch(500))[0].states for step in (Step(), Step(followed=3, turned=True)))
    assert (behind.source, behind.target) == (first.target, first.source)
    assert (behind.position, behind.followed) == (496, (0, 1, 2))


def test_checks_are_ratios_of_medians_and_rejected_drafts_are_judged_round_by_round() -> None:
    verified, rejected, accepted, edit, share = state.checks(SHORT_CONVS, SAMPLES)
    assert verified.got == pytest.approx(1.25)
    assert rejected.got == pytest.approx(0.25)
    assert not rejected.met
    assert (accepted.got, edit.got) == (pytest.approx(4 / 5), pytest.approx(2 / 2.5))
    assert share.got == pytest.approx(0.02)


@pytest.mark.parametrize("name", ATTENTION)
def test_the_dense_model_beside_it_has_its_sizes(name: str) -> None:
    ours, dense = SHAPES[name], SHAPES[ATTENTION[name]]
    for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"):
        assert ours[key] == dense[key]
