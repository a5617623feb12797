"""Figures of made-up records, against numpy and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from specserve.errors import ConfigError
from specserve_bench.client.records import DraftCounts, Failure, RequestRecord
from specserve_bench.figures.distribution import distribution, percentile
from specserve_bench.figures.objectives import parse_objectives
from specserve_bench.figures.summary import summarise


def record(number=0, **fields):
    values = {"sent": 0.0, "first": 0.1, "last": 0.5, "gaps": (0.2, 0.2), "num_prompt_tokens": 10, "num_tokens": 5}
    return RequestRecord(number=number, kind="code", **{**values, **fields})


BROKEN = Failure("status 500", "dead")


def test_percentiles_are_numpys():
    seconds = np.random.default_rng(0).exponential(size=101).tolist()
    found = distribution(seconds)
    for percent in (50, 90, 95, 99):
        assert getattr(found, f"p{percent}") == pytest.approx(1000 * np.percentile(seconds, percent))
    assert found.mean == pytest.approx(1000 * np.mean(seconds))
    assert (found.max, found.count) == (1000 * max(seconds), 101)


def test_a_percentile_needs_values_and_no_order():
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([7.0], 99) == 7.0
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_no_durations_have_no_distribution():
    assert distribution([]) is None


def test_rates_are_over_the_whole_run_and_failed_requests_have_no_tokens():
    summary = summarise([record(), record(), record(failure=BROKEN)], seconds=2.0)
    assert (summary.num_requests, summary.num_good, summary.failures) == (3, 2, {"status 500": 1})
    assert (summary.output_tokens, summary.prompt_tokens) == (10, 20)
    assert (summary.output_tokens_per_second, summary.total_tokens_per_second) == (5.0, 15.0)
    assert summary.requests_per_second == 1.0
    assert summary.latencies.e2e.count == 2


def test_a_request_of_one_token_has_no_time_per_token():
    summary = summarise([record(num_tokens=1, gaps=(), last=0.1), record()], seconds=1.0)
    assert summary.latencies.tpot.count == 1
    assert summary.latencies.tpot.mean == pytest.approx(1000 * 0.4 / 4)


def test_events_that_stood_for_tokens_are_told():
    assert summarise([record(), record(counted="events")], 1.0).tokens_counted_by == "events"
    assert summarise([record(), record(counted="events", failure=BROKEN)], 1.0).tokens_counted_by == "usage"


@pytest.mark.parametrize(
    ("words", "num_met"),
    [
        (["ttft=100"], 2),
        (["ttft=99"], 1),
        (["tpot=100"], 2),
        (["tpot=99", "e2e=900"], 1),
        (["e2e=500"], 2),
        (["e2e=10"], 0),
    ],
)
def test_a_good_request_keeps_every_objective(words, num_met):
    records = [record(), record(first=0.05, last=0.25), record(first=0.01, last=0.02, failure=BROKEN)]
    goodput = summarise(records, 4.0, parse_objectives(words)).goodput
    assert goodput.share == pytest.approx(num_met / 3)
    assert goodput.requests_per_second == pytest.approx(num_met / 4)


@pytest.mark.parametrize(
    "word", ["ttft", "ttft=", "ttft=fast", "ttft=0", "ttft=-3", "ttft=nan", "ttft=inf", "itl=3", "=3"]
)
def test_an_objective_is_a_name_and_milliseconds(word):
    with pytest.raises(ConfigError, match="ttft, tpot, e2e"):
        parse_objectives([word])


def test_steps_are_summed_by_why_they_stopped():
    records = [record(stops={"a": 1, "b": 2}), record(stops={"b": 3}), record(stops={"a": 90}, failure=BROKEN)]
    assert list(summarise(records, 1.0).stops.items()) == [("b", 5), ("a", 1)]


def test_draft_tokens_are_summed_by_drafter():
    drafted = [
        record(num_tokens=10, drafters={"ngram": DraftCounts(8, 4), "eagle": DraftCounts(2, 1)}),
        record(num_tokens=10, drafters={"ngram": DraftCounts(2, 0)}),
        record(num_tokens=10),
    ]
    summary = summarise(drafted, 1.0)
    assert {name: (one.drafted, one.accepted) for name, one in summary.acceptance.items()} == {
        "ngram": (10, 4),
        "eagle": (2, 1),
    }
    assert summary.tokens_per_step == pytest.approx(20 / 15)  # of the two requests whose drafts are known
    assert summarise([record()], 1.0).acceptance is None
