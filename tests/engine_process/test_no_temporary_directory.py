"""A system in which nothing can be written, as a container with a read-only root and no /tmp."""

from __future__ import annotations

import tempfile
from typing import NoReturn

import pytest

from specserve.errors import ConfigError
from specserve_server.engine_process.private_directory import private_directory


def test_without_a_place_for_sockets_the_start_stops_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_is_usable() -> NoReturn:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", none_is_usable)
    told = r"a directory for its sockets, and none can be made: .*No usable.* Set TMPDIR to a directory"
    with pytest.raises(ConfigError, match=told), private_directory():
        pass
