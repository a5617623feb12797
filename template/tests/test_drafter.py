"""What the drafter proposes, how much of it is accepted, and that drafts change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from specserve.api import Draft
from specserve_workbench.testing.engines import make_engine, run, run_requests, verify_everything
from specserve_workbench.testing.requests import toy_request, varied_requests

from repeat_plugin.plugin import LastTokenDrafter


@pytest.mark.parametrize(
    ("tokens", "limit", "draft"),
    [
        ([5, 9, 9], 8, Draft(tokens=(9, 9, 9))),
        ([5, 9, 9], 2, Draft(tokens=(9, 9))),
        ([5, 9, 9], 0, None),
        ([9, 5], 8, None),
        ([9], 8, None),
    ],
)
def test_the_last_token_is_repeated_within_the_limit(tokens: list[int], limit: int, draft: Draft | None) -> None:
    assert LastTokenDrafter(3).draft(tokens, limit) == draft


def test_drafts_change_no_token_and_no_logprob(toy_model: Path) -> None:
    requests = varied_requests(16)
    plain = run(toy_model, requests)
    drafted = run(toy_model, requests, plugins=("repeat",))
    assert drafted.decided() == plain.decided()
    assert not drafted.metrics.drafter_faults


def test_all_drafts_of_a_run_of_one_token_are_accepted(toy_model: Path) -> None:
    engine = make_engine(toy_model, plugins=("repeat",), plugin_options={"repeat": {"width": "3"}}).engine
    one_token = toy_request("a", (1, 2, 3), max_tokens=18, logit_bias={7: 100.0})
    served = run_requests(verify_everything(engine), [one_token])
    assert served.outputs["a"].tokens == [7] * 18
    # two plain steps, then four steps of three draft tokens and one more
    assert (served.metrics.num_accepted_tokens, served.metrics.num_draft_tokens) == (12, 12)
