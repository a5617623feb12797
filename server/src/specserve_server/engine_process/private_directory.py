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


@contextmanager
def private_directory() -> Iterator[Path]:
    """Removed in the end. Raises ConfigError."""
    try:
        made = tempfile.TemporaryDirectory(prefix="specserve-", dir=short_directory())
    except OSError as error:
        raise ConfigError(
            f"the engine's process needs a directory for its sockets, and none can be made: {error}. Set TMPDIR to a "
            "directory that can be written to, or pass --no-engine-process."
        ) from None
    with made as directory:
        yield Path(directory)


def short_directory() -> str | None:
    """None: the one that is configured by TMPDIR."""
    is_long = len(os.fsencode(tempfile.gettempdir())) > MAX_SOCKET_PATH - len("/specserve-12345678/routes")
    return "/tmp" if is_long else None


def routes_socket(directory: Path) -> str:
    """Where the engine's process serves the routes of plugins, over HTTP."""
    return str(directory / "routes")


def engine_socket(directory: Path) -> str:
    """Where the engine's process takes further server processes, with frames."""
    return str(directory / "engine")


def server_socket(directory: Path) -> str:
    """Where the first server process serves what further ones pass on to it, over HTTP."""
    return str(directory / "server")
