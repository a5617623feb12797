"""Decides from declarations alone whether plugins work together: a pure function of data and configuration.

Knows nothing about hooks or plugin code. A conflict that either of two plugins declares refuses; otherwise, for every
pair of features that they provide, one of the two must have declared the other's feature compatible.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from specserve.plugins.error_messages import describe_error
from specserve.plugins.features import core_features, needs_no_declaration
from specserve.plugins.findings import Finding, Kind, Resolution, Statement
from specserve.plugins.loaded_declaration import LoadedDeclaration, load_declaration, unusable, without_full_stop

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from specserve.config import EngineConfig
    from specserve.declare import Compatible, Conflict, PluginDeclaration


def resolve(enabled: Sequence[PluginDeclaration], config: EngineConfig) -> Resolution:
    """The findings on every pair of plugins, and on every plugin with the core's own features.

    Raises PluginError for a declaration that cannot be used: unknown tokens, constants that do not import.
    """
    plugins = tuple(load_declaration(declaration, config) for declaration in enabled)
    provided = [token for plugin in plugins for token in plugin.features]
    core = core_features(config, provided)
    in_effect = frozenset((*(plugin.name for plugin in plugins), *provided, *core))
    findings = []
    for i, plugin in enumerate(plugins):
        for other in plugins[i + 1 :]:
            findings.append(judge_pair(plugin, other, in_effect, config))
        against_core = (judge_core_feature(plugin, token, in_effect, config) for token in core)
        findings += [finding for finding in against_core if finding.statements]
    return Resolution(plugins, tuple(findings))


def judge_pair(
    left: LoadedDeclaration, right: LoadedDeclaration, in_effect: frozenset[str], config: EngineConfig
) -> Finding:
    pairs = itertools.product(left.features, right.features)
    meets = tuple(pair for pair in pairs if not any(map(needs_no_declaration, pair)))
    statements = (
        *statements_of(left, right.features, in_effect, config),
        *statements_of(right, left.features, in_effect, config),
    )
    undeclared = [(a, b) for a, b in meets if b not in left.compatible and a not in right.compatible]
    missing = (
        *missing_declarations(left, (b for _, b in undeclared)),
        *missing_declarations(right, (a for a, _ in undeclared)),
    )
    kind: Kind = "undeclared" if missing else "compatible"
    if any(statement.refuses for statement in statements):
        kind = "conflict"
    return Finding(kind, left.name, right.name, meets, statements, missing)


def judge_core_feature(
    plugin: LoadedDeclaration, token: str, in_effect: frozenset[str], config: EngineConfig
) -> Finding:
    """A plugin works with the core's own features unless it declares a conflict."""
    statements = tuple(statements_of(plugin, (token,), in_effect, config))
    kind: Kind = "conflict" if any(statement.refuses for statement in statements) else "compatible"
    return Finding(kind, plugin.name, token, (), statements)


def statements_of(
    plugin: LoadedDeclaration, tokens: Iterable[str], in_effect: frozenset[str], config: EngineConfig
) -> Iterable[Statement]:
    """What a plugin declares about these features. A conflict whose check returns no reason does not count."""
    for token in tokens:
        conflict = plugin.conflicts.get(token)
        if conflict is not None:
            reason = run_check(plugin, token, conflict, in_effect, config)
            if reason or conflict.check is None:
                yield Statement(plugin.name, token, "conflicts", reason or conflict.sentence, True)
        compatible = plugin.compatible.get(token)
        if compatible is not None:
            reason = run_check(plugin, token, compatible, in_effect, config)
            yield Statement(plugin.name, token, "compatible", reason or compatible.sentence, bool(reason))


def run_check(
    plugin: LoadedDeclaration,
    token: str,
    constant: Compatible | Conflict,
    in_effect: frozenset[str],
    config: EngineConfig,
) -> str | None:
    if constant.check is None:
        return None
    try:
        reason = constant.check(in_effect, config)
    except Exception as error:
        raise unusable(plugin.declaration, f"its check of {token} raised {describe_error(error)}") from error
    return without_full_stop(reason) if reason else None


def missing_declarations(plugin: LoadedDeclaration, tokens: Iterable[str]) -> Iterable[str]:
    module = plugin.declaration.module.rpartition(".")[0] or "PACKAGE"
    for token in dict.fromkeys(tokens):
        yield f'"{token}" = "{module}.compat:CONSTANT" in specserve.compatible.{plugin.name}'
