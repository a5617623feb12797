"""Drafts change no token and no log-probability, with every setting and beside every plugin; nothing is at fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from specserve.errors import ConfigError
from specserve.testing.conformance.cases import Case, compare
from specserve.testing.requests import toy_request, varied_requests

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from specserve.testing.conformance.cases import Options
    from specserve.types import GenerateRequest


def test_drafts_change_nothing(
    case: Case, toy_model: Path, plugin_options: Options, note: Callable[[str], None]
) -> None:
    requests = kit_requests()
    try:
        compared = compare(case, toy_model, requests, plugin_options)
    except ConfigError as error:
        pytest.skip(str(error))
    (plain, again), (drafted, drafted_again) = compared.plain, compared.drafted
    for request_id, expected in plain.decided().items():
        assert drafted.decided()[request_id] == expected, f"{request_id!r} differs with drafts of {compared.drafts}"
        assert again.decided()[request_id] == expected, f"{request_id!r} gets another answer when it is asked again"
        assert drafted_again.decided()[request_id] == expected, (
            f"{request_id!r} differs with drafts and cached prefixes"
        )
    assert not drafted.metrics.drafter_faults, drafted.metrics.drafter_faults
    assert not drafted.metrics.faults.counts, drafted.metrics.faults.counts
    metrics = drafted.metrics
    accepted = f"{metrics.num_accepted_tokens} of {metrics.num_draft_tokens}"
    note(f"{accepted} draft tokens of {compared.drafts} accepted, {metrics.num_preemptions} preemptions")
    assert metrics.num_preemptions or case.what != "preemption", "the cache was large enough for all requests"


def kit_requests() -> list[GenerateRequest]:
    """Requests that grow together, one token again and again, and all that requests may ask for."""
    growing = [
        toy_request(f"growing {i}", range(i, i + 60), max_tokens=48, temperature=0.8, seed=i, ignore_eos=True)
        for i in range(12)
    ]
    one_token = [toy_request(f"one token {i}", (5, 6, 6), max_tokens=20, logit_bias={6: 20.0}) for i in range(2)]
    return [*growing, *one_token, *varied_requests(12)]
