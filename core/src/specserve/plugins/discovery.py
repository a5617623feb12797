"""Reads what installed distributions declare, without importing any of them.

Owns the entry-point groups and their spelling. Knows nothing about which plugins are enabled or whether they
agree. What is misspelt is kept as a problem of the plugin, so that listing works and enabling refuses.
"""

from __future__ import annotations

import re
from collections import Counter
from importlib import metadata
from typing import TYPE_CHECKING

import msgspec

from specserve.declare import PLUGIN_API, PluginDeclaration, Reference
from specserve.plugins.features import canonical, did_you_mean, mention_problem, provide_problem
from specserve.plugins.wording import other_api

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PREFIX = "specserve."
PLUGINS = f"specserve.plugins.v{PLUGIN_API}"
MODELS = "specserve.models"
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
        if not any(holds_plugins(point.group) for point in points):
            continue
        dist = distribution.metadata["Name"] or "unnamed"
        if canonical(dist) not in seen:
            seen.add(canonical(dist))
            declarations += read_distribution(dist, distribution.version, points)
    return declarations


def read_distribution(dist: str, version: str, points: list[metadata.EntryPoint]) -> list[PluginDeclaration]:
    """A distribution speaks for its own plugins only: groups that name another plugin are problems.

    The rest of a plugin's declaration for another version of the plugin API is not judged.
    """
    plugins = plugin_points(points)
    apis = {name: api_version(point.group) or PLUGIN_API for name, point in plugins.items()}
    problems = (*group_problems(dist, apis, {point.group for point in points}), *plugin_problems(points))
    groups: dict[tuple[str, str], dict[str, Reference]] = {}
    for point in points:
        kind, _, name = point.group.removeprefix(PREFIX).partition(".")
        groups.setdefault((kind, name), {})[point.name] = Reference(point.value)
    return [
        PluginDeclaration(
            name=name,
            dist=dist,
            version=version,
            api=apis[name],
            module=point.value.partition(":")[0],
            class_name=point.value.partition(":")[2],
            provides={**groups.get(("provides", name), {})},
            compatible={**groups.get(("compatible", name), {})},
            conflicts={**groups.get(("conflicts", name), {})},
            problems=problems if apis[name] == PLUGIN_API else (other_api(apis[name]),),
        )
        for name, point in plugins.items()
    ]


def holds_plugins(group: str) -> bool:
    return f"{group}.".startswith("specserve.plugins.")


def api_version(group: str) -> int | None:
    """2 for `specserve.plugins.v2`; None for a group that names no version."""
    match = re.fullmatch(r"specserve\.plugins\.v([1-9][0-9]*)", group)
    return int(match[1]) if match else None


def plugin_points(points: list[metadata.EntryPoint]) -> dict[str, metadata.EntryPoint]:
    """The entry point of each plugin. One made for several versions of the plugin API has one for each: this version's
    is taken, else the newest."""
    own = [point for point in points if holds_plugins(point.group)]
    own.sort(key=lambda point: (point.group == PLUGINS, api_version(point.group) or 0))
    return {point.name: point for point in own}


def group_problems(dist: str, apis: Mapping[str, int], groups: set[str]) -> Iterable[str]:
    """`apis`: the version of the plugin API by plugin. What belongs to a plugin of another version is not judged."""
    for group in sorted(groups - {MODELS}):
        kind, _, name = group.removeprefix(PREFIX).partition(".")
        if holds_plugins(group):
            if api_version(group) is None:
                yield f"the entry-point group {group!r} names no version of the plugin API; it must be {PLUGINS!r}"
        elif apis.get(name, PLUGIN_API) != PLUGIN_API:
            continue
        elif kind not in KINDS or not name:
            allowed = [PLUGINS, MODELS, *(f"{PREFIX}{each}.{plugin}" for each in KINDS for plugin in apis)]
            yield f"{dist} has the unknown entry-point group {group!r}{did_you_mean(group, allowed)}"
        elif name not in apis:
            yield f"{dist} declares {group!r} but has no plugin {name!r}{did_you_mean(name, apis)}"


def plugin_problems(points: list[metadata.EntryPoint]) -> Iterable[str]:
    for name, point in plugin_points(points).items():
        if api_version(point.group) not in (None, PLUGIN_API):
            continue
        if name == "builtin" or "." in name:
            yield f"a plugin cannot be called {name!r}: 'builtin' is the core's own and a name has no dots"
        if not re.fullmatch(r"\w+(\.\w+)*(:\w+)?", point.value):
            allowed = "a module, like my_package.plugin, or a class in one, like my_package.plugin:MyPlugin"
            yield f"in {point.group}: {name} must name {allowed}; got {point.value!r}"
    named = Counter((point.group, point.name) for point in points if holds_plugins(point.group))
    for group, name in sorted(key for key, count in named.items() if count > 1):
        yield f"the entry-point group {group!r} names {name!r} twice"


def claimed_twice(first: PluginDeclaration, second: PluginDeclaration) -> PluginDeclaration:
    problem = f"both {first.dist} and {second.dist} call a plugin {first.name!r}; uninstall one of them"
    return msgspec.structs.replace(first, problems=(*first.problems, problem))


def with_token_problems(found: dict[str, PluginDeclaration]) -> dict[str, PluginDeclaration]:
    dists = {declaration.dist for declaration in found.values()}
    return {
        name: msgspec.structs.replace(declaration, problems=declaration.problems + token_problems(declaration, dists))
        if declaration.api == PLUGIN_API
        else declaration
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
