"""Frozen configuration of the HTTP server: names, defaults and bounds of [server], and their errors."""

from __future__ import annotations

import re

import msgspec

from specserve.config_checks import above_zero, at_least, choose
from specserve.errors import ConfigError

ROOT_PATH = re.compile(r"(/[A-Za-z0-9_.~-]+)+")
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s?#@]+")
ACCESS_LOGS = ("none", "text", "json")


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP side."""

    host: str = "127.0.0.1"
    port: int = 8000
    uds: str | None = None
    """The path of a unix socket to listen on, in place of host and port."""
    uds_mode: str = "600"
    """The socket's permissions, in octal."""
    root_path: str = ""
    """The prefix of all paths behind a proxy."""
    cors_origin: str | tuple[str, ...] | None = None
    """Origins whose pages may use the server from a browser; `*` for all."""
    tls_cert: str | None = None
    tls_key: str | None = None
    """None: in the file of tls_cert."""
    tls_ca: str | None = None
    """Clients must have a certificate that one of these signed."""
    api_key: str | tuple[str, ...] | None = None
    """Each of them is accepted."""
    api_key_file: str | None = None
    """More keys, one per line; read again at SIGHUP."""
    served_model_name: str | tuple[str, ...] | None = None
    """Names of the model in the API; the first is that of the metrics. None: the model's own."""
    max_body_bytes: int = 16 * 2**20
    sse_keep_alive: float | None = None
    """Seconds without an event after which a stream sends a comment; None: never."""
    request_timeout: float | None = None
    """Seconds after which a request that still runs is aborted with an error."""
    max_requests_per_minute: int | None = None
    """Of one API key, or without keys of one client address."""
    max_concurrent_requests_per_key: int | None = None
    """Without keys: of one client address."""
    drain_seconds: float = 30.0
    strict_fields: bool = False
    """Refuse fields of requests that nobody defines."""
    access_log: str = "none"
    """The form of a line for each request on standard error."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port must be between 0 and 65535 (0 picks a free one); got {self.port}.")
        if self.uds == "":
            raise ConfigError("uds must be the path of a socket. Leave it out to listen on host and port.")
        if not re.fullmatch("[0-7]{3}", self.uds_mode):
            raise ConfigError(f"uds_mode must be three octal digits, such as 660; got {self.uds_mode!r}.")
        if self.root_path and not ROOT_PATH.fullmatch(self.root_path):
            raise ConfigError(
                f"root_path must begin with a slash and end without one, such as /llm; got {self.root_path!r}."
            )
        for origin in self.cors_origins:
            if origin != "*" and not ORIGIN.fullmatch(origin):
                raise ConfigError(
                    f"cors_origin must be * or a scheme, a host and perhaps a port, such as https://chat.example; "
                    f"got {origin!r}."
                )
        names = self.served_model_names
        if self.served_model_name == () or any(name != (name.strip() or None) for name in names):
            raise ConfigError("served_model_name must not be empty or have blanks around it.")
        self.check_tls()
        choose("access_log", self.access_log, ACCESS_LOGS)
        at_least("max_body_bytes", self.max_body_bytes, 1)
        above_zero("sse_keep_alive", self.sse_keep_alive)
        above_zero("request_timeout", self.request_timeout)
        for name in ("max_requests_per_minute", "max_concurrent_requests_per_key"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 1)
        if not self.drain_seconds >= 0:  # also false for NaN
            raise ConfigError(f"drain_seconds must be at least 0; got {self.drain_seconds:g}.")
        if self.api_key == () or any(key != (key.strip() or None) for key in self.api_keys):
            raise ConfigError(
                "api_key must not be empty or have blanks around it. To serve everybody, leave out the flag, the key "
                "in the file and SPECSERVE_API_KEY."
            )

    def check_tls(self) -> None:
        if self.tls_cert is None and (self.tls_key is not None or self.tls_ca is not None):
            raise ConfigError("tls_key and tls_ca need tls_cert, the server's own certificate.")
        if self.tls_cert is not None and self.uds is not None:
            raise ConfigError("tls_cert and uds exclude each other: a unix socket is served without TLS.")

    @property
    def cors_origins(self) -> tuple[str, ...]:
        return as_tuple(self.cors_origin)

    @property
    def served_model_names(self) -> tuple[str, ...]:
        """Each once. Empty where the model's own name is used."""
        return tuple(dict.fromkeys(as_tuple(self.served_model_name)))

    @property
    def socket_mode(self) -> int:
        """Permissions of the unix socket."""
        return int(self.uds_mode, 8)

    @property
    def api_keys(self) -> tuple[str, ...]:
        """Without those of the file."""
        return as_tuple(self.api_key)


def as_tuple(values: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """One value may be written without a list."""
    return (values,) if isinstance(values, str) else values or ()
