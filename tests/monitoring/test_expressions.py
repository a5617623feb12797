"""What is wrong with an expression is found, and what is right is not called wrong."""

from __future__ import annotations

import pytest
from expressions import Series, check

MODEL = {"model": frozenset({"a"})}
KNOWN = {
    "asked_total": Series("counter", MODEL | {"reason": frozenset({"stop", "length"})}),
    "steps_total": Series("counter", MODEL),
    "took_bucket": Series("bucket", MODEL | {"le": frozenset({"1", "+Inf"})}),
    "took_sum": Series("counter", MODEL),
    "waiting": Series("gauge", MODEL),
}


@pytest.mark.parametrize(
    ("expression", "labels"),
    [
        ('rate(asked_total{reason="stop"}[5m])', {"job", "instance", "model", "reason"}),
        (
            "sum by (reason) (rate(asked_total[5m])) / ignoring (reason) group_left sum(rate(steps_total[5m]))",
            {"reason"},
        ),
        ("histogram_quantile(0.9, sum by (model, le) (rate(took_bucket[5m]))) > 5", {"model"}),
        ("sum(asked_total unless asked_total offset 15m) > 0 or sum(increase(asked_total[15m])) > 0", set()),
        ("avg_over_time(waiting[10m]) > 2 and deriv(waiting[10m]) > 0", {"job", "instance", "model"}),
        ("rate(took_sum[5m]) / on (job, instance) rate(steps_total[5m])", {"job", "instance", "model"}),
        ("max by (job) (max_over_time(waiting[10m:1m]))", {"job"}),
        ("time() - (sum(waiting) or vector(0))", set()),
    ],
)
def test_a_right_expression_is_known_by_its_labels(expression: str, labels: set[str]) -> None:
    found = check(expression, KNOWN)
    assert (found.complaints, found.labels) == ((), labels)


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("rate(asked[5m])", "no series asked"),
        ("rate(asked_total{resaon='stop'}[5m])", "no label resaon"),
        ("rate(asked_total{reason='stopped'}[5m])", "no reason 'stopped'"),
        ("sum by (resaon) (rate(asked_total[5m]))", "nothing below has ['resaon']"),
        ("rate(waiting[5m])", "no counter"),
        ("sum(increase(waiting[5m]))", "no counter"),
        ("deriv(steps_total[5m])", "deriv of a counter"),
        ("max_over_time(steps_total[5m])", "max_over_time of a counter"),
        ("histogram_quantile(0.9, sum by (le) (rate(took_sum[5m])))", "nothing below has ['le']"),
        ("histogram_quantile(0.9, sum by (model) (rate(took_bucket[5m])))", "without buckets by le"),
        ("histogram_quantile(0.9, rate(asked_total[5m]))", "without buckets by le"),
        ("rate(asked_total[5m]) / rate(steps_total[5m])", "never match"),
        ("rate(asked_total[5m]) / on (reason) rate(steps_total[5m])", "never match"),
        ("waiting > 1 and sum(waiting) > 1", "never match"),
        ("rate(asked_total)", "expected type matrix"),
        ("sum(waiting", "unclosed"),
    ],
)
def test_a_wrong_expression_is_found(expression: str, complaint: str) -> None:
    assert any(complaint in one for one in check(expression, KNOWN).complaints), check(expression, KNOWN)
