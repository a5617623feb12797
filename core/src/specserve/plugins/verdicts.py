"""Findings as messages, for start-up errors, the banner, `specserve plugins` and `/v1/plugins`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.plugins.features import FEATURES, HOW_TO_SWITCH_OFF, needs_no_declaration

if TYPE_CHECKING:
    from specserve.plugins.findings import Finding, Statement


def verdict(finding: Finding) -> str:
    """One sentence: which two, whether they work together, why."""
    left, right = finding.left, finding.right
    if finding.kind == "conflict":
        by = next(statement for statement in finding.statements if statement.refuses)
        return f"{left} cannot run with {right}: {by.sentence}."
    if finding.kind == "undeclared" and right in FEATURES:
        return f"{left} and {right} are undeclared: {left} does not say whether it works with it."
    if finding.kind == "undeclared":
        return f"{left} and {right} are undeclared: neither says that it works with the other's features."
    return f"{left} works with {right}: {why_compatible(finding)}."


def why_compatible(finding: Finding) -> str:
    sentences = dict.fromkeys(statement.sentence for statement in finding.statements if statement.sentence)
    if sentences:
        return "; ".join(sentences)
    if finding.statements:
        return "declared, without a sentence"
    if needs_no_declaration(finding.right):
        return "every plugin works with the core's own features unless it declares a conflict"
    return "no feature of one needs a declaration about a feature of the other"


def refusal(finding: Finding) -> str:
    """The verdict and how to resolve it."""
    return f"{verdict(finding)} {advice(finding)}"


def advice(finding: Finding) -> str:
    left, right = finding.left, finding.right
    if finding.kind == "undeclared" and right in FEATURES:
        return f"Missing: {missing_entry_points(finding)}; or a declaration of the plugin that provides it."
    if finding.kind == "undeclared":
        return (
            f"Missing: {missing_entry_points(finding)}. Remove --plugin {left} or --plugin {right}; "
            "or pass --allow-undeclared to run them together at your own risk."
        )
    if needs_no_declaration(right):
        alternative = f", or {HOW_TO_SWITCH_OFF[right]}" if right in HOW_TO_SWITCH_OFF else ""
        return f"Remove --plugin {left}{alternative}."
    return f"Remove --plugin {left} or --plugin {right}."


def missing_entry_points(finding: Finding) -> str:
    """The missing entry points of both plugins; those of one are enough."""
    sides = []
    for name in (finding.left, finding.right):
        own = [line for line in finding.missing if line.endswith(f".{name}")]
        if own:
            sides.append(", ".join(line.partition(" in ")[0] for line in own) + f" in specserve.compatible.{name}")
    return "; or ".join(sides)


def statement_line(statement: Statement) -> str:
    """Where a statement is declared, and what it says."""
    where = f'specserve.{statement.group}.{statement.by}, "{statement.token}"'
    return f"{where}: {statement.sentence}." if statement.sentence else f"{where}."
