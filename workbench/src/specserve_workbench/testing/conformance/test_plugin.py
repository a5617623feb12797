"""Drafts change no token and no log-probability, with every setting and beside every plugin; nothing is at fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from specserve.errors import ConfigError
from specserve_workbench.testing.conformance.cases import Case, compare

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from specserve.metrics import EngineMetrics
    from specserve_workbench.testing.conformance.cases import Options, References


def test_drafts_change_nothing(
    case: Case, toy_model: Path, plugin_options: Options, references: References, note: Callable[[str], None]
) -> None:
    try:
        compared = compare(case, toy_model, plugin_options, references)
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
    check_settings_had_an_effect(case, metrics)
    accepted = f"{metrics.num_accepted_tokens} of {metrics.num_draft_tokens}"
    note(f"{accepted} draft tokens of {compared.drafts} accepted{seen(case, metrics)}")


def check_settings_had_an_effect(case: Case, metrics: EngineMetrics) -> None:
    """A cache that is never hit, and a graph that is never replayed, prove nothing."""
    assert metrics.num_preemptions or case.what != "preemption", "the cache was large enough for all requests"
    assert metrics.prefix_cache_hits or not case.settings.get("prefix_cache", True), "no prefix was found in the cache"
    if "graphs" in case.settings and not num_replayed(case, metrics):
        reasons = ", ".join(use.reason for use in metrics.graph_steps)
        pytest.skip(f"no step was replayed from a {case.settings['graphs']} graph: {reasons}")


def seen(case: Case, metrics: EngineMetrics) -> str:
    if case.what == "preemption":
        return f", {metrics.num_preemptions} preemptions"
    return f", {num_replayed(case, metrics)} steps replayed" if "graphs" in case.settings else ""


def num_replayed(case: Case, metrics: EngineMetrics) -> int:
    """Steps that were replayed from such a graph as the case asks for."""
    return sum(count for use, count in metrics.graph_steps.items() if use.mode == case.settings.get("graphs"))
