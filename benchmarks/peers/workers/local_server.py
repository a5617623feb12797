"""A port for an HTTP server on this machine, and whether the server is ready.

Imported by workers too, in environments that have nothing but their engine.
"""

from __future__ import annotations

import socket
from urllib.error import URLError
from urllib.request import urlopen


def is_healthy(url: str) -> bool:
    try:
        with urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
