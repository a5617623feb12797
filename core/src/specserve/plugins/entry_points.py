"""The entry-point groups of plugins, and what is wrong with those of a distribution."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

from specserve.declare import PLUGIN_API
from specserve_checks.nearest import did_you_mean, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from importlib import metadata

PREFIX = "specserve."
OTHERS = ("specserve.models", "specserve.model_files", "specserve.commands")
"""Groups that are not about plugins."""
KINDS = ("provides", "compatible", "conflicts")


def is_ours(group: str) -> bool:
    return group.startswith(PREFIX) or is_misspelt(group)


def is_plugin_group(group: str) -> bool:
    """A misspelt one, too: its plugins are found, with the problem."""
    return f"{group}.".startswith("specserve.plugins.") or is_misspelt(group)


@cache
def is_misspelt(group: str) -> bool:
    """Whether it resembles `specserve.plugins`: `specserve.plugin`, `specserve_plugins`."""
    if f"{group}.".startswith("specserve.plugins.") or group in OTHERS:
        return False
    return suggest(re.sub("[-_.]+", ".", group.lower()), ["specserve.plugins", PLUGINS], cutoff=0.9) is not None


def plugin_group(api: int) -> str:
    """The group of plugins for this version of the plugin API: the first has no suffix."""
    return "specserve.plugins" if api == 1 else f"specserve.plugins.v{api}"


def api_version(group: str) -> int | None:
    """1 for `specserve.plugins`, 2 for `specserve.plugins.v2`; None for a group that names no version."""
    digits = group.removeprefix("specserve.plugins.v")
    api = int(digits) if digits.isdecimal() else 1
    return api if api > 0 and group == plugin_group(api) else None


PLUGINS = plugin_group(PLUGIN_API)


def plugin_entry_points(points: list[metadata.EntryPoint]) -> dict[str, metadata.EntryPoint]:
    """The entry point of each plugin. A plugin for several versions of the plugin API has several: the one for this
    version counts, else the one for the newest."""
    own = [point for point in points if is_plugin_group(point.group)]
    own.sort(key=lambda point: (point.group == PLUGINS, api_version(point.group) or 0))
    return {point.name: point for point in own}


def group_problems(dist: str, apis: Mapping[str, int], groups: set[str]) -> Iterable[str]:
    """`apis`: each plugin's version of the plugin API. Groups of a plugin for another version are not checked."""
    for group in sorted(groups.difference(OTHERS)):
        kind, _, name = group.removeprefix(PREFIX).partition(".")
        if is_misspelt(group):
            yield f"{dist} has the entry-point group {group!r}; it must be {PLUGINS!r}"
        elif is_plugin_group(group):
            if api_version(group) is None:
                yield f"the entry-point group {group!r} names no version of the plugin API; it must be {PLUGINS!r}"
        elif apis.get(name, PLUGIN_API) != PLUGIN_API:
            continue
        elif kind not in KINDS or not name:
            allowed = [PLUGINS, *OTHERS, *(f"{PREFIX}{each}.{plugin}" for each in KINDS for plugin in apis)]
            yield f"{dist} has the unknown entry-point group {group!r}{did_you_mean(group, allowed)}"
        elif name not in apis:
            yield f"{dist} declares {group!r} but has no plugin {name!r}{did_you_mean(name, apis)}"


def plugin_problems(points: list[metadata.EntryPoint]) -> Iterable[str]:
    for name, point in plugin_entry_points(points).items():
        if api_version(point.group) not in (None, PLUGIN_API):
            continue
        if name == "builtin" or "." in name:
            yield f"a plugin cannot be called {name!r}: 'builtin' is the core's own and a name has no dots"
        if not re.fullmatch(r"\w+(\.\w+)*(:\w+)?", point.value):
            allowed = "a module, like my_package.plugin, or a class in one, like my_package.plugin:MyPlugin"
            yield f"in {point.group}: {name} must name {allowed}; got {point.value!r}"
    named = Counter((point.group, point.name) for point in points if is_plugin_group(point.group))
    for group, name in sorted(key for key, count in named.items() if count > 1):
        yield f"the entry-point group {group!r} names {name!r} twice"
