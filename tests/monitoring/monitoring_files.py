"""deploy/monitoring, read: the dashboard's panels and queries, and the rules."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from expressions import Series, check

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy/monitoring"
ANY = {"$__rate_interval": "5m", "$model_name": ".*", "$instance": ".*"}
"""What Grafana puts in the place of variables, for one that parses."""
VARIABLE = re.compile(r"\$\{?(\w+)")


class Query(NamedTuple):
    panel: str
    written: str
    legend: str

    @property
    def expression(self) -> str:
        """Without variables; one that is not known stays."""
        found = self.written
        for variable, value in ANY.items():
            found = found.replace(variable, value)
        return found


def dashboard() -> Any:
    return json.loads((MONITORING / "grafana/specserve.json").read_text())


def panels() -> list[Any]:
    """Without the rows."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> Iterator[Query]:
    for panel in panels():
        for target in panel["targets"]:
            yield Query(panel["title"], target["expr"], target["legendFormat"])


def read_yaml(name: str) -> Any:
    return yaml.safe_load((MONITORING / "prometheus" / name).read_text())


def rules() -> list[Any]:
    return [rule for group in read_yaml("rules.yaml")["groups"] for rule in group["rules"]]


def alerts() -> dict[str, Any]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def recorded() -> dict[str, str]:
    """Expressions by the names under which they are recorded."""
    return {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}


def known_to_rules(exposed: Mapping[str, Series]) -> dict[str, Series]:
    """With what is recorded, and what Prometheus says of each target."""
    known = {**exposed, "up": Series("gauge", {})}
    for name, expression in recorded().items():
        labels = check(expression, known).labels or frozenset()
        known[name] = Series("gauge", {label: frozenset() for label in labels})
    return known
