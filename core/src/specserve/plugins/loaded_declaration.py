"""A plugin's declaration under one configuration: its constants imported, its features decided.

Of the plugin's code only the `.compat` module is imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, TypeVar

import msgspec

from specserve.declare import PLUGIN_API, Compatible, Conflict, PluginDeclaration, Provides, Reference
from specserve.errors import PluginError
from specserve.plugins.error_messages import describe_error, full_name, how_to_disable, other_api

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.config import EngineConfig

Constant = TypeVar("Constant", Provides, Compatible, Conflict)


class LoadedDeclaration(msgspec.Struct, frozen=True):
    declaration: PluginDeclaration
    features: tuple[str, ...]
    features_off: dict[str, str]
    """Features that it does not provide under this configuration, with the reason."""
    compatible: dict[str, Compatible]
    conflicts: dict[str, Conflict]

    @property
    def name(self) -> str:
        return self.declaration.name


def load_declaration(declaration: PluginDeclaration, config: EngineConfig) -> LoadedDeclaration:
    """Raises PluginError for a declaration that cannot be used."""
    refuse_other_api(declaration)
    if declaration.problems:
        raise unusable(declaration, "; ".join(declaration.problems))
    provides = {t: load_constant(declaration, t, value, Provides) for t, value in declaration.provides.items()}
    reasons = {token: why_off(declaration, feature, config) for token, feature in provides.items()}
    features_off = {token: reason for token, reason in reasons.items() if reason}
    return LoadedDeclaration(
        declaration,
        tuple(token for token in provides if token not in features_off),
        features_off,
        load_constants(declaration, declaration.compatible, Compatible),
        load_constants(declaration, declaration.conflicts, Conflict),
    )


def refuse_other_api(declaration: PluginDeclaration) -> None:
    """A plugin for another version of the plugin API is not imported, not even its `.compat`."""
    if declaration.api != PLUGIN_API:
        raise PluginError(
            f"{full_name(declaration)} is {other_api(declaration.api)}. Install a release of {declaration.dist} that "
            f"is made for version {PLUGIN_API}. {how_to_disable(declaration.name)}"
        )


def why_off(declaration: PluginDeclaration, feature: Provides, config: EngineConfig) -> str | None:
    try:
        reason = feature.check(config) if feature.check else None
    except Exception as error:
        raise unusable(declaration, f"its check of what it provides raised {describe_error(error)}") from error
    return without_full_stop(reason) if reason else None


def load_constants(
    declaration: PluginDeclaration, values: Mapping[str, Reference | Constant | str], kind: type[Constant]
) -> dict[str, Constant]:
    return {token: load_constant(declaration, token, value, kind) for token, value in values.items()}


def load_constant(
    declaration: PluginDeclaration, token: str, value: Reference | Constant | str, kind: type[Constant]
) -> Constant:
    """The constant that an entry point names, or that an in-process declaration holds."""
    constant = import_constant(declaration, token, value, kind) if isinstance(value, Reference) else value
    if isinstance(constant, str):
        return kind(without_full_stop(constant))
    if not isinstance(constant, kind):
        allowed = f"a {kind.__name__} or a str"
        raise unusable(declaration, f"the constant for {token} must be {allowed}; got {type(constant).__name__}")
    return msgspec.structs.replace(constant, sentence=without_full_stop(constant.sentence))


def import_constant(declaration: PluginDeclaration, token: str, reference: Reference, kind: type) -> object:
    """The attribute of a `.compat` module; an entry point in `provides` need not name one."""
    module, _, attribute = reference.value.partition(":")
    if not attribute:
        if kind is Provides:
            return ""
        raise unusable(declaration, f"{token} must name a constant, like {module}:WHY; got {reference.value!r}")
    if module.rpartition(".")[2] != "compat":
        raise unusable(declaration, f"{token} must name a constant in a .compat module; got {reference.value!r}")
    try:
        value: object = importlib.import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
    except Exception as error:
        raise unusable(declaration, f"{reference.value} for {token} raised {describe_error(error)}") from error
    return value


def without_full_stop(sentence: str) -> str:
    """Without the full stop, so that it fits into the middle of a message."""
    return sentence.strip().rstrip(".")


def unusable(declaration: PluginDeclaration, what: str) -> PluginError:
    return PluginError(
        f"the declarations of {full_name(declaration)} are not usable: {what}. "
        f"Fix the entry points of {declaration.dist}, or leave {declaration.name} off."
    )
