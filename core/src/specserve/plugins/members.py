"""A plugin's declaration with its constants imported and its features decided under one configuration.

Of a plugin it imports at most the `.compat` module.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from specserve.declare import PLUGIN_API, Compatible, Conflict, PluginDeclaration, Provides, Reference
from specserve.errors import PluginError
from specserve.plugins.text import describe_error
from specserve.plugins.wording import other_api

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.config import EngineConfig

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


def broken(declaration: PluginDeclaration, what: str) -> PluginError:
    name, dist = declaration.name, declaration.dist
    return PluginError(
        f"the declarations of plugin {name} ({dist} {declaration.version}) are not usable: {what}. "
        f"Fix the entry points of {dist}, or leave {name} off."
    )
