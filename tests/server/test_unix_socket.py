"""`--uds`: permissions, sockets that are left over, and what must not be replaced."""

from __future__ import annotations

import socket
import stat
import sys
from typing import TYPE_CHECKING

import aiohttp
import pytest
from serve_task import Server, starter, stop

from specserve.errors import ConfigError
from specserve_server.app.run import serve
from specserve_server.app.unix_socket import max_path_bytes, unix_socket
from specserve_server.config import ServerConfig

if TYPE_CHECKING:
    from pathlib import Path

    from fake_engine import FakeEngine


async def status_of(path: Path) -> int:
    session = aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path)))
    async with session, session.get("http://localhost/v1/models") as response:
        return response.status


@pytest.mark.parametrize("mode", ["600", "660"])
async def test_a_socket_is_served_with_its_permissions_and_removed(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str], tmp_path: Path, mode: str
) -> None:
    path = tmp_path / "s"
    server = Server(engine, capsys, uds=str(path), uds_mode=mode, access_log="text")
    assert await server.ready_line() == f"specserve: ready on unix:{path}"
    assert stat.S_IMODE(path.stat().st_mode) == int(mode, 8)
    assert await status_of(path) == 200
    assert "Z unix GET /v1/models 200" in capsys.readouterr().err
    await stop(server)
    assert not path.exists()


async def test_a_socket_that_nobody_serves_is_replaced(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    server = Server(engine, capsys, uds=str(path))
    await server.ready_line()
    assert await status_of(path) == 200
    with pytest.raises(ConfigError, match="another process listens on"), unix_socket(str(path), 0o600):
        pass
    assert await status_of(path) == 200
    await stop(server)


async def test_another_file_and_a_path_that_cannot_be_are_errors(engine: FakeEngine, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    for path, message in [
        (file, "is no socket"),
        (tmp_path / "no" / "folder", "No such file"),
        (tmp_path / ("x" * 200), "too long"),
    ]:
        with pytest.raises(ConfigError, match=message):
            await serve(starter(engine), ServerConfig(uds=str(path)))
    assert file.read_text() == "precious"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take fewer bytes")
def test_the_longest_path_that_the_system_takes_is_served_and_no_longer_one(tmp_path: Path) -> None:
    folder = str(tmp_path)
    longest = f"{folder}/{'x' * (max_path_bytes() - len(folder) - 1)}"
    with unix_socket(longest, 0o600) as bound:
        bound.close()
    told = r"the system takes 107 bytes, and this has 108\. Choose a shorter path"
    with pytest.raises(ConfigError, match=told), unix_socket(f"{longest}x", 0o600):
        pass


def test_macos_takes_shorter_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ConfigError, match="takes 103 bytes, and this has 104"), unix_socket("x" * 104, 0o600):
        pass


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="uds must be the path of a socket"):
        ServerConfig(uds="")


@pytest.mark.parametrize("mode", ["", "7777", "rw-", "680"])
def test_a_mode_that_is_not_octal_is_refused(mode: str) -> None:
    with pytest.raises(ConfigError, match="uds_mode must be three octal digits"):
        ServerConfig(uds_mode=mode)
