"""What the native call that makes chains of draft tokens refuses, and what it says of its passes."""

from __future__ import annotations

from array import array

import pytest
import torch
from eagle_engines import drafter_of, eagle_engine, write_draft, write_target
from examined_passes import changed, serve_examined

from specserve.protocols import DraftPass
from specserve_cpu import _native
from specserve_cpu.dlpack import dlpack
from specserve_workbench.testing.requests import toy_request

STEPS, OWN = 10, 11
"""Their places among the arguments."""


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


class Examined:
    """A native pass; `examine(native, arguments)` is called before its chains, with arguments that may be changed.
    `arguments()` makes new ones each time."""

    def __init__(self, passes, examine):
        self.passes, self.examine, self.num_calls = passes, examine, 0
        self.step = passes.step

    def chains(self, batch, hidden, rows, steps):
        passes = self.passes

        def arguments():
            return [
                *passes.inputs(batch, hidden, rows, from_target=True),
                list(steps),
                dlpack(passes.empty_own(batch)),
            ]

        self.num_calls += 1
        self.examine(passes.native, arguments)
        return passes.chains(batch, hidden, rows, steps)


def with_edit(arguments):
    arguments[9].forbid(array("q", [1]))


def without_target(arguments):
    arguments[9] = _native.TargetRows()


CASES = {
    "too few steps": (changed(STEPS, lambda steps: steps[1:]), "steps and targets must be of each scored row"),
    "no steps": (changed(STEPS, lambda steps: []), "steps and targets must be of each scored row"),
    "a chain of no token": (changed(STEPS, lambda steps: [0, *steps[1:]]), "steps must be at least 1; got 0"),
    "beyond the blocks": (changed(STEPS, lambda steps: [60, *steps[1:]]), "with blocks for its chain"),
    "beyond the positions": (changed(STEPS, lambda steps: [*steps[:-1], 600]), "position must be in"),
    "no target row": (without_target, "steps and targets must be of each scored row"),
    "an edit": (with_edit, "chains take no edits"),
    "no place for hidden states": (changed(OWN, lambda own: None), "own must be given"),
    "too small a place": (changed(OWN, lambda own: dlpack(torch.zeros(1, 3))), "own"),
    "no hidden states": (changed(1, lambda hidden: None), "hidden must be given"),
}


@pytest.mark.parametrize("case", CASES)
def test_arguments_that_do_not_fit_are_refused(tmp_path, target, case):
    change, message = CASES[case]

    def examine(native, arguments):
        broken = arguments()
        change(broken)
        with pytest.raises((ValueError, IndexError), match=message):
            native.chains(*broken)

    draft = write_draft(tmp_path / "draft", "eagle", target)
    serve_examined(target, draft, lambda passes: Examined(passes, examine), steps=3)


def test_passes_after_the_first_are_counted_and_timed(tmp_path, target):
    def examine(native, arguments):
        made = arguments()
        steps = made[STEPS] = [1 + i for i, _ in enumerate(made[STEPS])]
        (tokens, probabilities), seconds, num_passes = native.chains(*made)
        assert num_passes == max(steps) - 1
        assert (seconds > 0) == (num_passes > 0) or num_passes == 0
        assert len(tokens) == len(probabilities) == max(steps) * len(steps)
        for i, wanted in enumerate(steps):
            chain = probabilities[i * max(steps) : (i + 1) * max(steps)]
            assert [p > 0 for p in chain] == [depth < wanted for depth in range(max(steps))]

    draft = write_draft(tmp_path / "draft", "eagle3", target)
    serve_examined(target, draft, lambda passes: Examined(passes, examine), steps=3)


class Ending(DraftPass):
    """Passes whose chains end after their first token, as if there were no further one. Counts passes behind these."""

    def __init__(self, passes):
        self.passes, self.num_steps = passes, 0

    def step(self, *arguments, from_target):
        self.num_steps += not from_target
        return self.passes.step(*arguments, from_target=from_target)

    def chains(self, *arguments):
        made = self.passes.chains(*arguments)
        return made._replace(tokens=[chain[:1] for chain in made.tokens])


def test_a_chain_that_ended_is_not_gone_on_with(tmp_path, target):
    engine = eagle_engine(
        target, write_draft(tmp_path / "draft", "eagle", target), steps=3, default_plugins=True, block_size=4
    )
    drafter = drafter_of(engine)
    drafter.passes = ending = Ending(drafter.passes)
    engine.add(toy_request("a", range(9), max_tokens=8, ignore_eos=True))
    while engine.has_work:
        engine.step()
    assert engine.metrics.num_draft_tokens == engine.metrics.num_drafts > 2
    assert ending.num_steps == 0
    assert not engine.metrics.drafter_faults
