"""A place where plugins are installed, and hosts that look nowhere else."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import pytest
from fake_site import FakeBuiltin, write_plugin

from specserve.config import EngineConfig
from specserve.plugins.discovery import discover
from specserve.plugins.host import PluginHost

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fake_site import Install, Start


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The only place where plugins are found; what is imported from it is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    only_here = functools.partial(discover, [str(tmp_path)])
    monkeypatch.setattr("specserve.plugins.discovery.discover", only_here)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def beside_ours(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finds the plugins that are installed here, too."""
    monkeypatch.setattr("specserve.plugins.discovery.discover", discover)


@pytest.fixture
def install(site: Path) -> Install:
    return functools.partial(write_plugin, site)


@pytest.fixture
def start(site: Path) -> Start:
    """`start("a", "b", graphs="full")` starts a host with these plugins enabled."""

    def begin(*names: str, extra: Any = None, **config: Any) -> PluginHost:
        return PluginHost.start(EngineConfig(plugins=names, **config), extra, builtin=FakeBuiltin())

    return begin
