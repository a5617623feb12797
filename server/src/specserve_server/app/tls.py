"""TLS: from the files of the configuration to a context, whose certificate may be replaced while it serves."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from specserve.errors import ConfigError

if TYPE_CHECKING:
    from specserve_server.config import ServerConfig

CERTIFICATE = re.compile(rb"-----BEGIN (TRUSTED |X509 )?CERTIFICATE-----")
KEY = re.compile(rb"-----BEGIN ([A-Z]+ )*PRIVATE KEY-----")
"""What such a file has in PEM form."""
MISMATCH = "KEY_VALUES_MISMATCH"
DER_START = b"\x30\x82"


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
            lacking = what_it_lacks("tls_ca", config.tls_ca, CERTIFICATE, "certificate")
            raise ConfigError(lacking or f"tls_ca: {config.tls_ca} is damaged: {reason(error)}.") from None
    return context


def load_certificate(context: ssl.SSLContext, config: ServerConfig) -> None:
    def refuse_to_ask() -> str:
        raise ConfigError(f"tls_key: {config.tls_key or config.tls_cert} is encrypted. Give a key without a password.")

    assert config.tls_cert is not None
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key, refuse_to_ask)
    except OSError as error:
        raise ConfigError(what_is_wrong(config.tls_cert, config.tls_key, error)) from None


def what_is_wrong(cert: str, key: str | None, error: OSError) -> str:
    """Which of the files, and why: OpenSSL does not say."""
    lacking = what_it_lacks("tls_cert", cert, CERTIFICATE, "certificate")
    if lacking is None and key is not None:
        lacking = what_it_lacks("tls_key", key, KEY, "private key")
    elif lacking is None:
        lacking = what_it_lacks("tls_cert", cert, KEY, "private key", "Add it to the certificate, or give tls_key.")
    if lacking is not None:
        return lacking
    files = f"tls_cert {cert} and tls_key {key}" if key else f"tls_cert {cert}"
    if isinstance(error, ssl.SSLError) and error.reason == MISMATCH:
        return f"{files}: this is the key of another certificate (key values mismatch). Give the pair that fits."
    return f"{files}: the certificate or the key is damaged: {reason(error)}."


def what_it_lacks(option: str, file: str, form: re.Pattern[bytes], what: str, advice: str = "") -> str | None:
    """None where nothing is missing."""
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        return f"{option}: {file} is not readable: {error.strerror}."
    if form.search(data):
        return None
    if data.startswith(DER_START):
        advice = "It may be in DER form: convert it with openssl, as in `openssl x509 -inform der -in FILE`."
    elif form is CERTIFICATE and KEY.search(data):
        advice = "It has a private key, which belongs to tls_key."
    elif form is KEY and CERTIFICATE.search(data) and not advice:
        advice = "It has a certificate, which belongs to tls_cert."
    return f"{option}: {file} has no {what} in PEM form. {advice or 'Name the right file.'}"


def reason(error: OSError) -> str:
    """An SSLError is an OSError, too."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it cannot be read as PEM").replace("_", " ").lower()
    return error.strerror or str(error)
