"""A unix socket to listen on. A socket that a server has left behind is replaced, one that is served never."""

from __future__ import annotations

import os
import socket
import stat
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from specserve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def unix_socket(path: str, mode: int) -> Iterator[socket.socket]:
    """Bound, and not listening yet, so that nobody can connect before it has its mode. Who listens on it closes it; the
    path is removed in the end. Raises ConfigError."""
    check_length(path)
    remove_stale(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(path)
        os.chmod(path, mode)
    except OSError as error:
        bound.close()
        raise ConfigError(f"uds: cannot make a socket at {path}: {error.strerror or error}.") from None
    made = os.stat(path).st_ino
    try:
        yield bound
    finally:
        with suppress(FileNotFoundError):
            if os.stat(path).st_ino == made:  # else another server has replaced it
                os.unlink(path)


def max_path_bytes() -> int:
    """What the system takes: macOS and the BSDs four fewer than Linux."""
    return 107 if sys.platform == "linux" else 103


def check_length(path: str) -> None:
    size, most = len(os.fsencode(path)), max_path_bytes()
    if size > most:
        raise ConfigError(
            f"uds: {path} is too long for a socket: the system takes {most} bytes, and this has {size}. "
            "Choose a shorter path, such as one below /tmp."
        )


def remove_stale(path: str) -> None:
    try:
        found = os.stat(path).st_mode
    except OSError:
        return  # nothing there, or `bind` says what is wrong
    if not stat.S_ISSOCK(found):
        raise ConfigError(f"uds: {path} exists and is no socket. Choose another path, or remove it.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except OSError as error:
            raise ConfigError(f"uds: {path} is a socket that cannot be used: {error.strerror or error}.") from None
        else:
            raise ConfigError(f"uds: another process listens on {path}. Stop it, or choose another path.")
