"""What a sample for /metrics must be. Knows no exposition format but its alphabet."""

from __future__ import annotations

import re

from specserve.faults import BadAnswerError
from specserve.protocols import Metric

KINDS = ("counter", "gauge")
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


def check_metric(metric: Metric) -> bool:
    """True, or BadAnswerError with what is wrong."""
    if not isinstance(metric, Metric):
        raise BadAnswerError("gave a metric that is no specserve.api.Metric")
    if not isinstance(metric.name, str) or not NAME.fullmatch(metric.name):
        raise BadAnswerError("gave a metric with a name that Prometheus does not take")
    if not isinstance(metric.help, str):
        raise BadAnswerError("gave a metric whose help is not text")
    if metric.kind not in KINDS:
        raise BadAnswerError(f"gave a metric of a kind that is none of {', '.join(KINDS)}", f"{metric.kind!r}")
    if isinstance(metric.value, bool) or not isinstance(metric.value, (int, float)):
        raise BadAnswerError("gave a metric whose value is no number")
    check_labels(metric)
    return True


def check_labels(metric: Metric) -> None:
    try:
        names = [name for name, value in metric.labels if isinstance(name, str) and isinstance(value, str)]
        texts = len(names) == len(metric.labels)
    except (TypeError, ValueError):
        texts = False
    if not texts:
        raise BadAnswerError("gave a metric whose labels are no pairs of texts")
    if len(set(names)) != len(names) or not all(map(LABEL.fullmatch, names)):
        raise BadAnswerError("gave a metric with a label name that Prometheus does not take, or the same one twice")
