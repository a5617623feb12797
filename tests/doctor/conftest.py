"""Cases with faked system files, and a place where plugins are installed."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from specserve.config import EngineConfig
from specserve.plugins.discovery import discover
from specserve_server.config import ServerConfig
from specserve_workbench.doctor.case import Case

sys.path.append(str(Path(__file__).parents[1] / "plugins"))

from fake_site import write_plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def make_case(tmp_path: Path) -> Callable[..., Case]:
    """`make_case({"proc/cpuinfo": "..."}, threads=2)`: only these system files exist."""

    def make(files: dict[str, str] | None = None, server: ServerConfig | None = None, **config: Any) -> Case:
        root = tmp_path / "system"
        for path, text in (files or {}).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        return Case(EngineConfig(**config), server or ServerConfig(), root)

    return make


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """The only place where plugins are found; what is imported from it is forgotten afterwards."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr("specserve.plugins.discovery.discover", functools.partial(discover, [str(site)]))
    before = set(sys.modules)
    yield functools.partial(write_plugin, site)
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(site)):
            del sys.modules[name]
