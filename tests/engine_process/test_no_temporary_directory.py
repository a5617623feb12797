"""A system in which nothing can be written, as a container with a read-only root and no /tmp."""

from __future__ import annotations

import os
import socket
import tempfile
from typing import TYPE_CHECKING, NoReturn

import pytest

from specserve.errors import ConfigError
from specserve_server.engine_process import private_directory as module
from specserve_server.engine_process.private_directory import MAX_DIRECTORY, private_directory, routes_socket

if TYPE_CHECKING:
    from pathlib import Path


def test_without_a_place_for_sockets_the_start_stops_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_is_usable() -> NoReturn:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", none_is_usable)
    told = r"a directory for its sockets, and none can be made: .*No usable.* Set TMPDIR to a directory"
    with pytest.raises(ConfigError, match=told), private_directory():
        pass


def test_where_a_long_path_is_not_used_the_message_says_so_and_how_long_one_may_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = tmp_path / ("d" * MAX_DIRECTORY)
    long.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(long))
    monkeypatch.setattr(module, "WHERE_TMPDIR_IS_LONG", str(tmp_path / "absent"))
    with pytest.raises(ConfigError) as raised, private_directory():
        pass
    told = str(raised.value)
    assert f"none can be made in {tmp_path}/absent, as the path {long} is too long: " in told
    assert f"has a path of at most {MAX_DIRECTORY} bytes" in told
    assert "with one HTTP process can do without: pass --no-engine-process" in told


def test_a_path_as_long_as_the_message_allows_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="s-") as short:
        allowed = f"{short}/{'d' * (MAX_DIRECTORY - len(short) - 1)}"
        os.mkdir(allowed)
        monkeypatch.setattr(tempfile, "gettempdir", lambda: allowed)
        with private_directory() as directory, socket.socket(socket.AF_UNIX) as listening:
            assert str(directory.parent) == allowed
            listening.bind(routes_socket(directory))
