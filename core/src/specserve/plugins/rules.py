"""Decides from declarations alone whether plugins work together: a pure function of data and configuration.

Owns the rules of compatibility. Knows nothing about hooks or plugin code. Two plugins meet in every pair of features
that they provide; a conflict declared by either side refuses, and otherwise one of the two must have declared each
meeting pair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.plugins.features import core_features, is_core
from specserve.plugins.findings import Finding, Kind, Resolution, Statement
from specserve.plugins.members import Member, broken, clean, load_member
from specserve.plugins.text import describe_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from specserve.config import EngineConfig
    from specserve.declare import Compatible, Conflict, PluginDeclaration


def resolve(enabled: Sequence[PluginDeclaration], config: EngineConfig) -> Resolution:
    """Judge each two plugins, and each plugin against the core's own features.

    Raises PluginError for a declaration that cannot be used: unknown tokens, constants that do not import.
    """
    members = tuple(load_member(declaration, config) for declaration in enabled)
    provided = [token for member in members for token in member.features]
    core = core_features(config, provided)
    everything = frozenset((*(m.name for m in members), *provided, *core))
    findings = []
    for i, member in enumerate(members):
        for other in members[i + 1 :]:
            findings.append(judge_pair(member, other, everything, config))
        against_core = (judge_core(member, token, everything, config) for token in core)
        findings += [finding for finding in against_core if finding.statements]
    return Resolution(members, tuple(findings))


def judge_pair(left: Member, right: Member, everything: frozenset[str], config: EngineConfig) -> Finding:
    meets = tuple((a, b) for a in left.features for b in right.features if not (is_core(a) or is_core(b)))
    statements = (
        *statements_of(left, right.features, everything, config),
        *statements_of(right, left.features, everything, config),
    )
    undeclared = [(a, b) for a, b in meets if b not in left.compatible and a not in right.compatible]
    missing = (
        *missing_lines(left, (b for _, b in undeclared)),
        *missing_lines(right, (a for a, _ in undeclared)),
    )
    kind: Kind = "undeclared" if missing else "compatible"
    if any(statement.refuses for statement in statements):
        kind = "conflict"
    return Finding(kind, left.name, right.name, meets, statements, missing)


def judge_core(member: Member, token: str, everything: frozenset[str], config: EngineConfig) -> Finding:
    """A plugin works with the core's own features unless it declares a conflict."""
    statements = tuple(statements_of(member, (token,), everything, config))
    kind: Kind = "conflict" if any(statement.refuses for statement in statements) else "compatible"
    return Finding(kind, member.name, token, (), statements)


def statements_of(
    member: Member, tokens: Iterable[str], everything: frozenset[str], config: EngineConfig
) -> Iterable[Statement]:
    """What a plugin says about these features, here; a conditional conflict whose check passes says nothing."""
    for token in tokens:
        conflict = member.conflicts.get(token)
        if conflict is not None:
            reason = run_check(member, token, conflict, everything, config)
            if reason or conflict.check is None:
                yield Statement(member.name, token, "conflicts", reason or conflict.sentence, True)
        compatible = member.compatible.get(token)
        if compatible is not None:
            reason = run_check(member, token, compatible, everything, config)
            yield Statement(member.name, token, "compatible", reason or compatible.sentence, bool(reason))


def run_check(
    member: Member, token: str, constant: Compatible | Conflict, everything: frozenset[str], config: EngineConfig
) -> str | None:
    if constant.check is None:
        return None
    try:
        reason = constant.check(everything, config)
    except Exception as error:
        raise broken(member.declaration, f"its check of {token} raised {describe_error(error)}") from error
    return clean(reason) if reason else None


def missing_lines(member: Member, tokens: Iterable[str]) -> Iterable[str]:
    module = member.declaration.module.rpartition(".")[0] or "PACKAGE"
    for token in dict.fromkeys(tokens):
        yield f'"{token}" = "{module}.compat:CONSTANT" in specserve.compatible.{member.name}'
