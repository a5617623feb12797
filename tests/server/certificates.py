"""Certificates for tests of TLS, made by the openssl command."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Certificate(NamedTuple):
    cert: Path
    key: Path


def make_certificate(folder: Path, name: str, issuer: Certificate | None = None) -> Certificate:
    """For 127.0.0.1; signed by the issuer, else by itself and fit to sign others."""
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    signed_by = ["-CA", issuer.cert, "-CAkey", issuer.key] if issuer else []
    extensions = ["-addext", "subjectAltName=IP:127.0.0.1"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-keyout", made.key]
    subject = ["-subj", f"/CN={name}", "-days", "2"]
    command = ["openssl", "req", "-x509", *key, *subject, *extensions, *signed_by, "-out", made.cert]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return made
