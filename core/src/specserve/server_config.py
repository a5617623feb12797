"""Frozen configuration of the HTTP server: names, defaults and bounds of [server], and their errors."""

from __future__ import annotations

import msgspec

from specserve.config_checks import at_least, choose
from specserve.errors import ConfigError

ACCESS_LOGS = ("none", "text", "json")


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP side."""

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | tuple[str, ...] | None = None
    """Each of them is accepted."""
    api_key_file: str | None = None
    """More keys, one per line; read again at SIGHUP."""
    served_model_name: str | None = None
    max_body_bytes: int = 16 * 2**20
    drain_seconds: float = 30.0
    access_log: str = "none"
    """The form of a line for each request on standard error."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port must be between 0 and 65535 (0 picks a free one); got {self.port}.")
        choose("access_log", self.access_log, ACCESS_LOGS)
        at_least("max_body_bytes", self.max_body_bytes, 1)
        if not self.drain_seconds >= 0:  # also false for NaN
            raise ConfigError(f"drain_seconds must be at least 0; got {self.drain_seconds:g}.")
        if self.api_key == () or any(key != (key.strip() or None) for key in self.api_keys):
            raise ConfigError(
                "api_key must not be empty or have blanks around it. To serve everybody, leave out the flag, the key "
                "in the file and SPECSERVE_API_KEY."
            )

    @property
    def api_keys(self) -> tuple[str, ...]:
        """Without those of the file."""
        return as_tuple(self.api_key)


def as_tuple(values: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """One value may be written without a list."""
    return (values,) if isinstance(values, str) else values or ()
