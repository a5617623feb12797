"""Reads what installed distributions declare, without importing any of them.

Owns the entry-point groups and their spelling. Knows nothing about which plugins are enabled or whether they
agree. What is misspelt is kept as a problem of the plugin, so that listing works and enabling refuses.
"""

from __future__ import annotations

import re
from importlib import metadata
from typing import TYPE_CHECKING

import msgspec

from specserve.declare import PluginDeclaration, Reference
from specserve.plugins.features import canonical, did_you_mean, mention_problem, provide_problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PREFIX = "specserve."
PLUGINS = "specserve.plugins"
WHOLE_GROUPS = (PLUGINS, "specserve.models")
KINDS = ("provides", "compatible", "conflicts")


def discover(path: Sequence[str] | None = None) -> dict[str, PluginDeclaration]:
    """Every installed plugin by name, in order of name. `path`: where to look, in place of sys.path."""
    found: dict[str, PluginDeclaration] = {}
    distributions = metadata.distributions() if path is None else metadata.distributions(path=list(path))
    for declaration in sorted(read_distributions(distributions), key=lambda d: (d.name, d.dist)):
        other = found.get(declaration.name)
        found[declaration.name] = claimed_twice(other, declaration) if other else declaration
    return with_token_problems(found)


def read_distributions(distributions: Iterable[metadata.Distribution]) -> list[PluginDeclaration]:
    """The plugins of each distribution; the first of several copies on the path is the one that Python imports."""
    seen: set[str] = set()
    declarations = []
    for distribution in distributions:
        points = [point for point in distribution.entry_points if point.group.startswith(PREFIX)]
        if not any(point.group == PLUGINS for point in points):
            continue
        dist = distribution.metadata["Name"] or "unnamed"
        if canonical(dist) not in seen:
            seen.add(canonical(dist))
            declarations += read_distribution(dist, distribution.version, points)
    return declarations


def read_distribution(dist: str, version: str, points: list[metadata.EntryPoint]) -> list[PluginDeclaration]:
    """A distribution speaks for its own plugins only: groups that name another plugin are problems."""
    names = [point.name for point in points if point.group == PLUGINS]
    problems = (*group_problems(dist, names, {point.group for point in points}), *plugin_problems(points))
    groups: dict[tuple[str, str], dict[str, Reference]] = {}
    for point in points:
        kind, _, name = point.group.removeprefix(PREFIX).partition(".")
        groups.setdefault((kind, name), {})[point.name] = Reference(point.value)
    return [
        PluginDeclaration(
            name=point.name,
            dist=dist,
            version=version,
            module=point.value.partition(":")[0],
            class_name=point.value.partition(":")[2],
            provides={**groups.get(("provides", point.name), {})},
            compatible={**groups.get(("compatible", point.name), {})},
            conflicts={**groups.get(("conflicts", point.name), {})},
            problems=problems,
        )
        for point in points
        if point.group == PLUGINS
    ]


def group_problems(dist: str, names: list[str], groups: set[str]) -> Iterable[str]:
    for group in sorted(groups - set(WHOLE_GROUPS)):
        kind, _, name = group.removeprefix(PREFIX).partition(".")
        if kind not in KINDS or not name:
            allowed = [*WHOLE_GROUPS, *(f"{PREFIX}{each}.{plugin}" for each in KINDS for plugin in names)]
            yield f"{dist} has the unknown entry-point group {group!r}{did_you_mean(group, allowed)}"
        elif name not in names:
            yield f"{dist} declares {group!r} but has no plugin {name!r}{did_you_mean(name, names)}"


def plugin_problems(points: list[metadata.EntryPoint]) -> Iterable[str]:
    plugins = {point.name: point.value for point in points if point.group == PLUGINS}
    for name, value in plugins.items():
        if name == "builtin" or "." in name:
            yield f"a plugin cannot be called {name!r}: 'builtin' is the core's own and a name has no dots"
        if not re.fullmatch(r"\w+(\.\w+)*(:\w+)?", value):
            allowed = "a module, like my_package.plugin, or a class in one, like my_package.plugin:MyPlugin"
            yield f"in {PLUGINS}: {name} must name {allowed}; got {value!r}"
    names = [point.name for point in points if point.group == PLUGINS]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"the entry-point group {PLUGINS!r} names {name!r} twice"


def claimed_twice(first: PluginDeclaration, second: PluginDeclaration) -> PluginDeclaration:
    problem = f"both {first.dist} and {second.dist} call a plugin {first.name!r}; uninstall one of them"
    return msgspec.structs.replace(first, problems=(*first.problems, problem))


def with_token_problems(found: dict[str, PluginDeclaration]) -> dict[str, PluginDeclaration]:
    dists = {declaration.dist for declaration in found.values()}
    return {
        name: msgspec.structs.replace(declaration, problems=declaration.problems + token_problems(declaration, dists))
        for name, declaration in found.items()
    }


def token_problems(declaration: PluginDeclaration, dists: set[str]) -> tuple[str, ...]:
    """What is wrong with the feature tokens that a plugin declares; `dists`: the distributions that have plugins."""
    problems = [(f"provides.{declaration.name}", provide_problem(t, declaration.dist)) for t in declaration.provides]
    for group, tokens in (("compatible", declaration.compatible), ("conflicts", declaration.conflicts)):
        known = {*dists, declaration.dist}
        problems += [(f"{group}.{declaration.name}", mention_problem(token, known)) for token in tokens]
    if not declaration.provides:
        missing = "no feature is declared; without one nobody can say what the plugin meets"
        problems.append((f"provides.{declaration.name}", missing))
    return tuple(f"in {PREFIX}{group}: {problem}" for group, problem in problems if problem)
