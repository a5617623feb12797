"""Reads what installed distributions declare, without importing any of them.

Knows nothing about which plugins are enabled or compatible. A misspelling is kept as a problem of the plugin: listing
works, enabling refuses.
"""

from __future__ import annotations

import re
from importlib import metadata
from typing import TYPE_CHECKING

import msgspec

from specserve.declare import PLUGIN_API, PluginDeclaration, Reference
from specserve.plugins.entry_points import (
    PREFIX,
    api_version,
    group_problems,
    is_ours,
    is_plugin_group,
    plugin_entry_points,
    plugin_problems,
)
from specserve.plugins.error_messages import other_api
from specserve.plugins.tokens import canonical, token_problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


GROUP = re.compile(r"^\s*\[\s*(.*?)\s*\]", re.MULTILINE)


def discover(path: Sequence[str] | None = None) -> dict[str, PluginDeclaration]:
    """Every installed plugin by name, in order of name. `path`: where to look, in place of sys.path."""
    found: dict[str, PluginDeclaration] = {}
    distributions = metadata.distributions() if path is None else metadata.distributions(path=list(path))
    for declaration in sorted(read_distributions(distributions), key=lambda d: (d.name, d.dist)):
        other = found.get(declaration.name)
        found[declaration.name] = with_duplicate(other, declaration) if other else declaration
    return with_token_problems(found)


def read_distributions(distributions: Iterable[metadata.Distribution]) -> list[PluginDeclaration]:
    """The plugins of each distribution. Of several copies of one on the path the first counts: Python imports that."""
    seen: set[str] = set()
    declarations = []
    for distribution in distributions:
        if not any(map(is_plugin_group, groups_of(distribution))):
            continue
        points = [point for point in distribution.entry_points if is_ours(point.group)]
        described = distribution.metadata  # parsed each time that it is read
        dist = described["Name"] or "unnamed"
        if canonical(dist) not in seen:
            seen.add(canonical(dist))
            declarations += read_distribution(dist, described["Version"], points)
    return declarations


def groups_of(distribution: metadata.Distribution) -> list[str]:
    """The text of its entry points. Most distributions have none of ours: theirs are not parsed further."""
    return GROUP.findall(distribution.read_text("entry_points.txt") or "")


def read_distribution(dist: str, version: str, points: list[metadata.EntryPoint]) -> list[PluginDeclaration]:
    """Groups that name a plugin of another distribution are problems. The rest of a declaration for another version of
    the plugin API is not checked."""
    plugins = plugin_entry_points(points)
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


def with_duplicate(first: PluginDeclaration, second: PluginDeclaration) -> PluginDeclaration:
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
