"""TLS: from the files of the configuration to a context, whose certificate may be replaced while it serves."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from specserve.errors import ConfigError

if TYPE_CHECKING:
    from specserve.server_config import ServerConfig


class Tls:
    """Made for a configuration with `tls_cert`. Raises ConfigError."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self.context = make_context(config)

    def reload(self) -> None:
        """New connections get the certificate that the files have now. A ConfigError changes nothing."""
        make_context(self._config)  # a pair that does not fit would leave the live context half changed
        load_certificate(self.context, self._config)


def make_context(config: ServerConfig) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    load_certificate(context, config)
    if config.tls_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(config.tls_ca)
        except OSError as error:
            raise ConfigError(f"tls_ca: {config.tls_ca} holds no certificates in PEM form: {reason(error)}.") from None
    return context


def load_certificate(context: ssl.SSLContext, config: ServerConfig) -> None:
    def refuse_to_ask() -> str:
        raise ConfigError(f"tls_key: {config.tls_key or config.tls_cert} is encrypted. Give a key without a password.")

    assert config.tls_cert is not None
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key, refuse_to_ask)
    except OSError as error:
        files = f"tls_cert {config.tls_cert}" + (f" and tls_key {config.tls_key}" if config.tls_key else "")
        raise ConfigError(
            f"{files} are no certificate and its key in PEM form: {reason(error)}. Without tls_key the file of "
            "tls_cert must hold both."
        ) from None


def reason(error: OSError) -> str:
    """An SSLError is an OSError, too."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return error.strerror or str(error)
