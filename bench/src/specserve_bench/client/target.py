"""The server that is measured: its address, its key, and the connections to it."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies

import aiohttp

from specserve.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


class Target(NamedTuple):
    """`url` has no path behind it but one that leads to /v1, and no / at its end."""

    url: str
    api_key: str | None = None
    timeout: float = 600.0
    """Seconds for one request."""
    ca_file: Path | None = None
    """Certificates to trust; None: the system's."""
    insecure: bool = False
    """Trust every certificate."""

    def session(self) -> aiohttp.ClientSession:
        """As many connections as there are requests. Called in an event loop."""
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self.ssl()),
            timeout=aiohttp.ClientTimeout(total=self.timeout),
            headers=headers,
            trust_env=bool(getproxies()),  # it looks for proxies and passwords before every request
        )

    def ssl(self) -> ssl.SSLContext | bool:
        if self.insecure:
            return False
        if self.ca_file is None:
            return True
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"bench: --ca-file {self.ca_file} has no certificates that can be read: {error}."
            ) from None


def parse_url(text: str) -> str:
    """`http://host:8000/v1/` -> `http://host:8000`. ConfigError where it is no address of a server."""
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(
            f"bench: URL must be http:// or https:// with a host, such as http://127.0.0.1:8000; got {text!r}."
        )
    return url.rstrip("/").removesuffix("/v1")
