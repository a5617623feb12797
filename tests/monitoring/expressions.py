"""What is wrong with a PromQL expression, given the series that there are: names, labels, kinds, and how they are used.

Knows nothing of specserve. The grammar and the types of functions' arguments are promql_parser's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import promql_parser as promql

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCRAPE_LABELS = frozenset({"job", "instance"})
"""Prometheus adds them to every series that it scrapes."""
COUNTERS_ONLY = {"rate", "irate", "increase", "resets"}
GAUGES_ONLY = {"deriv", "delta", "idelta", "predict_linear"}


class Series(NamedTuple):
    """All series of a name. `kind`: counter, gauge or bucket; `values` by label."""

    kind: str
    values: Mapping[str, frozenset[str]]

    @property
    def labels(self) -> frozenset[str]:
        return SCRAPE_LABELS | frozenset(self.values)


class Checked(NamedTuple):
    """`labels` of the result; None for a number. `names` of the series that it reads."""

    labels: frozenset[str] | None
    names: frozenset[str]
    complaints: tuple[str, ...]


def check(expression: str, known: Mapping[str, Series]) -> Checked:
    """A syntax error, or an argument of a wrong type, is a complaint too."""
    try:
        tree = promql.parse(expression)
    except ValueError as error:
        return Checked(None, frozenset(), (str(error),))
    reader = Reader(known)
    labels = reader.labels_of(tree)
    return Checked(labels, frozenset(reader.names), tuple(reader.complaints))


class Reader:
    """Walks one expression."""

    def __init__(self, known: Mapping[str, Series]) -> None:
        self.known = known
        self.names: set[str] = set()
        self.complaints: list[str] = []

    def labels_of(self, tree: promql.Expr) -> frozenset[str] | None:
        match tree:
            case promql.VectorSelector():
                return self.of_selector(tree)
            case promql.MatrixSelector():
                return self.of_selector(tree.vector_selector)
            case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
                return self.labels_of(tree.expr)
            case promql.AggregateExpr():
                return self.of_aggregate(tree)
            case promql.BinaryExpr():
                return self.of_pair(tree)
            case promql.Call():
                return self.of_call(tree)
            case _:
                return None

    def of_selector(self, tree: promql.VectorSelector) -> frozenset[str]:
        assert tree.name, "a selector without a name reads all there is"
        self.names.add(tree.name)
        series = self.known.get(tree.name)
        if series is None:
            self.complaints.append(f"no series {tree.name}")
            return frozenset()
        for matcher in tree.matchers.matchers:
            if matcher.name not in series.labels:
                self.complaints.append(f"{tree.name} has no label {matcher.name}")
            elif matcher.op == promql.MatchOp.Equal and matcher.name not in SCRAPE_LABELS:
                self.check_value(tree.name, matcher.name, matcher.value)
        return series.labels

    def check_value(self, name: str, label: str, value: str) -> None:
        if value not in self.known[name].values[label]:
            self.complaints.append(f"{name} has no {label} {value!r}")

    def of_aggregate(self, tree: promql.AggregateExpr) -> frozenset[str]:
        below, modifier = self.labels_of(tree.expr) or frozenset(), tree.modifier
        if modifier is None:
            return frozenset()
        named = frozenset(modifier.labels)
        if lacking := named - below:
            self.complaints.append(f"{tree.prettify()}: nothing below has {sorted(lacking)}")
        return named if modifier.type == promql.AggModifierType.By else below - named

    def of_pair(self, tree: promql.BinaryExpr) -> frozenset[str] | None:
        left, right, modifier = self.labels_of(tree.lhs), self.labels_of(tree.rhs), tree.modifier
        if left is None or right is None:
            return right if left is None else left
        one, other = left, right
        if modifier is not None and modifier.matching is not None:
            named, included = frozenset(modifier.matching.labels), promql.LabelModifierType.Include
            if modifier.matching.type == included:
                one, other = named & left, named & right
            else:
                one, other = left - named, right - named
        if one != other:
            self.complaints.append(f"{tree.prettify()}: {sorted(one)} never match {sorted(other)}")
        return left

    def of_call(self, tree: promql.Call) -> frozenset[str] | None:
        name, labels = tree.func.name, [self.labels_of(argument) for argument in tree.args]
        kinds = {self.known[read].kind for read in self.read_by(tree.args) if read in self.known}
        if name in COUNTERS_ONLY and not kinds <= {"counter", "bucket"}:
            self.complaints.append(f"{tree.prettify()}: {name} of what is no counter")
        if (name in GAUGES_ONLY or name.endswith("_over_time")) and not kinds <= {"gauge"}:
            self.complaints.append(f"{tree.prettify()}: {name} of a counter")
        if name == "histogram_quantile":
            if kinds != {"bucket"} or "le" not in (labels[1] or ()):
                self.complaints.append(f"{tree.prettify()}: histogram_quantile without buckets by le")
            return (labels[1] or frozenset()) - {"le"}
        if name == "vector":
            return frozenset()
        return None if name == "scalar" else next((found for found in labels if found is not None), None)

    @staticmethod
    def read_by(trees: Iterable[promql.Expr]) -> set[str]:
        found: set[str] = set()
        for tree in trees:
            promql.walk(tree, lambda node: found.add(node.name) if isinstance(node, promql.VectorSelector) else None)
        return found
