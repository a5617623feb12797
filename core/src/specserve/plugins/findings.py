"""The verdicts on a set of plugins, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from specserve.plugins.loaded_declaration import LoadedDeclaration

if TYPE_CHECKING:
    from specserve.config import EngineConfig

Kind = Literal["conflict", "undeclared", "compatible"]


class Statement(msgspec.Struct, frozen=True):
    """What one plugin declares about one feature under this configuration."""

    by: str
    token: str
    group: Literal["compatible", "conflicts"]
    sentence: str
    refuses: bool


class Finding(msgspec.Struct, frozen=True):
    """The verdict on two plugins, or on a plugin and a feature."""

    kind: Kind
    left: str
    right: str
    meets: tuple[tuple[str, str], ...]
    """Pairs of features that need a declaration, `left`'s first."""
    statements: tuple[Statement, ...]
    missing: tuple[str, ...] = ()
    """Entry points that are missing; those of one plugin are enough."""


class Resolution(msgspec.Struct, frozen=True):
    """The verdicts on a set of plugins; both in the order in which the plugins were enabled."""

    plugins: tuple[LoadedDeclaration, ...]
    findings: tuple[Finding, ...]

    @property
    def provided(self) -> frozenset[str]:
        return frozenset(token for plugin in self.plugins for token in plugin.features)

    def of(self, kind: Kind) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.kind == kind)

    def refusals(self, config: EngineConfig) -> tuple[Finding, ...]:
        """What stops start-up: conflicts, and undeclared pairs unless they are allowed."""
        return self.of("conflict") + (() if config.allow_undeclared else self.of("undeclared"))
