"""Decides from declarations alone whether plugins work together: a pure function of data and configuration.

Owns the rules of compatibility. Knows nothing about hooks or plugin code: of a plugin it imports at most the
`.compat` module. Two plugins meet in every pair of features that they provide; a conflict declared by either
side refuses, and otherwise one of the two must have declared each meeting pair.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from specserve.declare import PLUGIN_API, Compatible, Conflict, PluginDeclaration, Provides, Reference
from specserve.errors import PluginError
from specserve.faults import text_of
from specserve.plugins.features import core_features, is_core
from specserve.plugins.wording import other_api

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from specserve.config import EngineConfig

Kind = Literal["conflict", "undeclared", "compatible"]
Constant = TypeVar("Constant", Provides, Compatible, Conflict)


class Member(msgspec.Struct, frozen=True):
    """A plugin with its constants loaded and the features that it provides under one configuration."""

    declaration: PluginDeclaration
    features: tuple[str, ...]
    absent: dict[str, str]
    """Features that it does not provide under this configuration, with the reason."""
    compatible: dict[str, Compatible]
    conflicts: dict[str, Conflict]

    @property
    def name(self) -> str:
        return self.declaration.name


class Statement(msgspec.Struct, frozen=True):
    """What one plugin declares about one feature; `refuses` when it is a conflict here."""

    by: str
    token: str
    group: Literal["compatible", "conflicts"]
    sentence: str
    refuses: bool


class Finding(msgspec.Struct, frozen=True):
    """The verdict on two plugins, or on a plugin and a feature of the core."""

    kind: Kind
    left: str
    right: str
    meets: tuple[tuple[str, str], ...]
    """Feature pairs that need a declaration; left's first."""
    statements: tuple[Statement, ...]
    missing: tuple[str, ...] = ()
    """Entry-point lines, any group of which would settle an undeclared pair."""


class Resolution(msgspec.Struct, frozen=True):
    """Every verdict for a set of plugins, in the order in which they were enabled."""

    members: tuple[Member, ...]
    findings: tuple[Finding, ...]

    @property
    def provided(self) -> frozenset[str]:
        return frozenset(token for member in self.members for token in member.features)

    def of(self, kind: Kind) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.kind == kind)

    def refusals(self, config: EngineConfig) -> tuple[Finding, ...]:
        """What stops start-up: conflicts, and undeclared pairs unless they are allowed."""
        return self.of("conflict") + (() if config.allow_undeclared else self.of("undeclared"))


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


# --- loading --------------------------------------------------------------------------------------------


def load_member(declaration: PluginDeclaration, config: EngineConfig) -> Member:
    """Load a plugin's constants and decide which features it provides under this configuration."""
    refuse_other_api(declaration)
    if declaration.problems:
        raise broken(declaration, "; ".join(declaration.problems))
    provides = {t: load_constant(declaration, t, value, Provides) for t, value in declaration.provides.items()}
    reasons = {token: why_absent(declaration, feature, config) for token, feature in provides.items()}
    absent = {token: reason for token, reason in reasons.items() if reason}
    return Member(
        declaration,
        tuple(token for token in provides if token not in absent),
        absent,
        load_constants(declaration, declaration.compatible, Compatible),
        load_constants(declaration, declaration.conflicts, Conflict),
    )


def refuse_other_api(declaration: PluginDeclaration) -> None:
    """A plugin for another version of the plugin API is not imported, not even its `.compat`."""
    if declaration.api == PLUGIN_API:
        return
    name, dist = declaration.name, declaration.dist
    raise PluginError(
        f"plugin {name} ({dist} {declaration.version}) is {other_api(declaration.api)}. "
        f"Install a release of {dist} that is made for version {PLUGIN_API}, or start without {name}: "
        f"remove --plugin {name} or pass --no-plugin {name}."
    )


def why_absent(declaration: PluginDeclaration, feature: Provides, config: EngineConfig) -> str | None:
    try:
        reason = feature.check(config) if feature.check else None
    except Exception as error:
        raise broken(declaration, f"its check of what it provides raised {describe_error(error)}") from error
    return clean(reason) if reason else None


def load_constants(
    declaration: PluginDeclaration, values: Mapping[str, Any], kind: type[Constant]
) -> dict[str, Constant]:
    return {token: load_constant(declaration, token, value, kind) for token, value in values.items()}


def load_constant(declaration: PluginDeclaration, token: str, value: Any, kind: type[Constant]) -> Constant:
    """The constant behind an entry point. Only `.compat` modules are imported, and only where an attribute is named."""
    if isinstance(value, Reference):
        value = follow(declaration, token, value, kind)
    if isinstance(value, str):
        value = kind(clean(value))
    if not isinstance(value, kind):
        allowed = f"a {kind.__name__} or a str"
        raise broken(declaration, f"the constant for {token} must be {allowed}; got {type(value).__name__}")
    return kind(clean(value.sentence), value.check)


def follow(declaration: PluginDeclaration, token: str, reference: Reference, kind: type[Constant]) -> Any:
    module, _, attribute = reference.value.partition(":")
    if not attribute:
        if kind is Provides:
            return ""
        raise broken(declaration, f"{token} must name a constant, like {module}:WHY; got {reference.value!r}")
    if module.rpartition(".")[2] != "compat":
        raise broken(declaration, f"{token} must name a constant in a .compat module; got {reference.value!r}")
    try:
        value = importlib.import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
    except Exception as error:
        raise broken(declaration, f"{reference.value} for {token} raised {describe_error(error)}") from error
    return value


def clean(sentence: str) -> str:
    """Without the full stop, so that it fits into the middle of a message."""
    return sentence.strip().rstrip(".")


def describe_error(error: BaseException) -> str:
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def broken(declaration: PluginDeclaration, what: str) -> PluginError:
    name, dist = declaration.name, declaration.dist
    return PluginError(
        f"the declarations of plugin {name} ({dist} {declaration.version}) are not usable: {what}. "
        f"Fix the entry points of {dist}, or leave {name} off."
    )
