"""The page at /, which a distribution brings: files by the entry-point group `specserve.page`.

An entry point is a function without arguments that returns routes for GET. They hold nothing of this server, so they
are served without an API key, and while the engine loads. Knows nothing about what is on the page.
"""

from __future__ import annotations

from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, NamedTuple

from specserve.errors import ConfigError
from specserve.faults import FAULTS
from specserve.plugins.error_messages import unusable_entry_point

if TYPE_CHECKING:
    from aiohttp import web

GROUP = "specserve.page"


class Page(NamedTuple):
    routes: tuple[web.RouteDef, ...] = ()

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(route.path for route in self.routes)


NO_PAGE = Page()


@cache
def installed_page() -> Page:
    """NO_PAGE where no distribution brings one. Raises ConfigError where one cannot be used, and for two."""
    points = tuple(metadata.entry_points(group=GROUP))
    if not points:
        return NO_PAGE
    if len(points) > 1:
        names = " and ".join(sorted(point.value for point in points))
        raise ConfigError(f"only one page can be served at /; {names} are installed. Uninstall one, or pass --no-page.")
    try:
        return Page(tuple(points[0].load()()))
    except FAULTS as error:
        why = unusable_entry_point(points[0], "the page", error)
        raise ConfigError(f"{why} Or pass --no-page.") from error
