"""The directory of an engine's sockets, which only the user of the server can read."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from specserve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_SOCKET_PATH = 100
"""Bytes: the system allows a few more."""
MAX_DIRECTORY = MAX_SOCKET_PATH - len("/specserve-12345678/routes")
"""Bytes of the path that TMPDIR has."""
WHERE_TMPDIR_IS_LONG = "/tmp"


@contextmanager
def private_directory() -> Iterator[Path]:
    """Removed in the end. Raises ConfigError."""
    try:
        configured = tempfile.gettempdir()
    except OSError as error:
        raise none_can_be_made("", error) from None
    is_long = len(os.fsencode(configured)) > MAX_DIRECTORY
    parent = WHERE_TMPDIR_IS_LONG if is_long else configured
    try:
        made = tempfile.TemporaryDirectory(prefix="specserve-", dir=parent)
    except OSError as error:
        because = f", as the path {configured} is too long" if is_long else ""
        raise none_can_be_made(f" in {parent}{because}", error) from None
    with made as directory:
        yield Path(directory)


def none_can_be_made(where: str, error: OSError) -> ConfigError:
    return ConfigError(
        f"the engine's process needs a directory for its sockets, and none can be made{where}: {error}. Set TMPDIR "
        f"to a directory that can be written to and has a path of at most {MAX_DIRECTORY} bytes. A server with "
        "one HTTP process can do without: pass --no-engine-process."
    )


def routes_socket(directory: Path) -> str:
    """Where the engine's process serves the routes of plugins, over HTTP."""
    return str(directory / "routes")


def engine_socket(directory: Path) -> str:
    """Where the engine's process takes further server processes, with frames."""
    return str(directory / "engine")


def server_socket(directory: Path) -> str:
    """Where the first server process serves what further ones pass on to it, over HTTP."""
    return str(directory / "server")
