"""adaptive's metrics: what was decided and why, how good the estimates are, and what steps are thought to take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from specserve.api import Metric

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from specserve_adaptive._native import Planner
    from specserve_adaptive.step_costs import StepCosts

GAUGE, COUNTER = "gauge", "counter"
DRAFT_TOKENS = (0, 1, 2, 4, 8, 16, 32)
"""Draft tokens for which the metrics say what a step takes."""


class HasMetrics(Protocol):
    """A planner with metrics of its own."""

    def metrics(self) -> Iterable[Metric]: ...


class PlannerObserver:
    """The planner learns from the steps itself."""

    observe = None

    def __init__(self, planner: HasMetrics) -> None:
        self.planner = planner

    def metrics(self) -> Iterable[Metric]:
        return self.planner.metrics()


def decision_metrics(native: Planner) -> Iterator[Metric]:
    stats = native.stats()
    for reason, count in stats["steps"].items():
        name, help = "specserve_adaptive_request_steps_total", "Steps of requests, by what was decided and why"
        yield Metric(name, help, COUNTER, float(count), (("reason", reason),))
    for width, count in enumerate(stats["widths"]):
        name, help = "specserve_adaptive_width_total", "Steps of requests, by draft tokens verified"
        yield Metric(name, help, COUNTER, float(count), (("draft_tokens", str(width)),))
    predicted = "specserve_adaptive_predicted_accepted_tokens_total"
    yield Metric(predicted, "Draft tokens that were expected to be accepted", COUNTER, stats["predicted"])
    accepted = "specserve_adaptive_accepted_tokens_total"
    yield Metric(accepted, "Draft tokens that were accepted", COUNTER, float(stats["accepted"]))
    verified = "specserve_adaptive_verified_tokens_total"
    yield Metric(verified, "Draft tokens that were verified", COUNTER, float(stats["verified"]))
    error = "specserve_adaptive_calibration_error"
    help = "Mean distance of predicted from observed acceptance of recent draft tokens, by predicted survival"
    yield Metric(error, help, GAUGE, stats["calibration_error"])


def cost_metrics(costs: StepCosts) -> Iterator[Metric]:
    for requests, error in costs.usual_errors().items():
        labels = (("requests", str(requests)),)
        help = "Usual relative error of what a step is expected to take"
        yield Metric("specserve_adaptive_step_cost_error", help, GAUGE, error, labels)
        for draft_tokens in DRAFT_TOKENS:
            help = "What a step of this many requests and draft tokens is expected to take"
            seconds = costs.seconds(requests + draft_tokens, requests, draft_tokens)
            more = (*labels, ("draft_tokens", str(draft_tokens)))
            yield Metric("specserve_adaptive_step_cost_seconds", help, GAUGE, seconds, more)
