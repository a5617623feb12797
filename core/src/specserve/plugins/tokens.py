"""What makes a feature token in a declaration acceptable.

A token outside the core's namespaces belongs to a distribution and begins with its name (`mydist.something`); an
unknown token inside them is an error, so that a typo never becomes permission.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from specserve.plugins.features import (
    CORE_FEATURES,
    FEATURES,
    GRAPH_FEATURES,
    KERNEL_FEATURES,
    MODEL_FEATURES,
    NAMESPACES,
    PLUGIN_FEATURES,
)
from specserve_checks.nearest import did_you_mean, suggest

if TYPE_CHECKING:
    from collections.abc import Collection

    from specserve.declare import PluginDeclaration


def token_problems(declaration: PluginDeclaration, dists: set[str]) -> tuple[str, ...]:
    """What is wrong with the feature tokens of a declaration. `dists`: distributions with plugins."""
    problems = [(f"provides.{declaration.name}", provide_problem(t, declaration.dist)) for t in declaration.provides]
    for group, tokens in (("compatible", declaration.compatible), ("conflicts", declaration.conflicts)):
        known = {*dists, declaration.dist}
        problems += [(f"{group}.{declaration.name}", mention_problem(token, known)) for token in tokens]
    if not declaration.provides:
        missing = "no feature is declared; without one nobody can say what the plugin meets"
        problems.append((f"provides.{declaration.name}", missing))
    return tuple(f"in specserve.{group}: {problem}" for group, problem in problems if problem)


def canonical(name: str) -> str:
    """A distribution's name in the normal form of the packaging specification."""
    return re.sub(r"[-_.]+", "-", name).lower()


def belongs_to(token: str, dist: str) -> bool:
    """Whether the token is in the distribution's namespace: `my_dist.thing` belongs to `my-dist`."""
    head, rest = token[: len(dist)], token[len(dist) :]
    return canonical(head) == canonical(dist) and rest.startswith(".") and len(rest) > 1


def provide_problem(token: str, dist: str) -> str | None:
    """Why a plugin of distribution `dist` must not provide this token, or None."""
    allowed = [*KERNEL_FEATURES, *GRAPH_FEATURES, *MODEL_FEATURES, *PLUGIN_FEATURES]
    if token in allowed or (belongs_to(token, dist) and not in_core_namespace(token)):
        return None
    if token in CORE_FEATURES:
        return f"{token} is the core's own feature and cannot be provided by a plugin"
    return unknown(token, allowed, f"a new feature of {dist} begins with its name: {dist}.something")


def mention_problem(token: str, dists: Collection[str]) -> str | None:
    """Why a plugin must not declare anything about this token, or None. `dists`: distributions with plugins.

    The feature of a distribution that is not installed is accepted, unless it looks like a misspelt token of the core.
    """
    if token in FEATURES:
        return None
    if not in_core_namespace(token) and any(belongs_to(token, dist) for dist in dists):
        return None
    head, dot, rest = token.partition(".")
    if dot and rest and head not in NAMESPACES and not suggest(head, NAMESPACES):
        return None
    return unknown(token, FEATURES, "the feature of another distribution begins with that distribution's name")


def in_core_namespace(token: str) -> bool:
    return token.partition(".")[0] in NAMESPACES


def unknown(token: str, allowed: Collection[str], otherwise: str) -> str:
    return f"{token!r} is not a known feature{did_you_mean(token, allowed)} (known: {', '.join(allowed)}; {otherwise})"
