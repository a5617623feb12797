"""Makes a failing plan small: one change at a time, kept where the trial still fails in the same way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from fuzz.changes import simpler
from fuzz.trial import run_trial

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuzz.plans import Plan
    from fuzz.trial import Outcome

TRIAL_SECONDS = 30


def run_briefly(plan: Plan) -> Outcome:
    return run_trial(plan, limit_seconds=TRIAL_SECONDS)


def minimise(failed: Outcome, seconds: float, run: Callable[[Plan], Outcome] = run_briefly) -> Outcome:
    """The smallest failure that was found in so long; `failed` itself where nothing smaller fails.

    A plan that failed before it had requests stays as it is: other requests would be drawn for a changed one.
    """
    assert failed.failure is not None, "there is nothing to minimise"
    until, kind = time.monotonic() + seconds, failed.failure.kind
    smallest, tried = failed, set[bytes]()
    progress = smallest.plan.requests is not None
    while progress:
        progress = False
        for plan in simpler(smallest.plan):
            if time.monotonic() > until:
                return smallest
            if (key := msgspec.json.encode(plan)) in tried:
                continue
            tried.add(key)
            outcome = run(plan)
            if outcome.failure is not None and outcome.failure.kind == kind:
                smallest, progress = outcome, True
                break
    return smallest
