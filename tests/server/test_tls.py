"""HTTPS: certificates of the server and of clients, replaced while it serves, and wrong files."""

from __future__ import annotations

import os
import re
import shutil
import signal
import ssl
import subprocess
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from certificates import Certificate, make_certificate
from patience import until
from serve_task import Server, stop

from specserve.errors import ConfigError
from specserve_server.app.tls import Tls
from specserve_server.config import ServerConfig

if TYPE_CHECKING:
    from pathlib import Path

    from fake_engine import FakeEngine

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl command makes the certificates")


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("issuer"), "issuer")


def options(one: Certificate, **more: Any) -> dict[str, str]:
    return {"tls_cert": str(one.cert), "tls_key": str(one.key), **more}


async def get(url: str, trusted: Certificate, own: Certificate | None = None) -> int:
    context = ssl.create_default_context(cafile=str(trusted.cert))
    if own is not None:
        context.load_cert_chain(own.cert, own.key)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session, session.get(f"{url}/v1/models") as response:
        return response.status


async def address(server: Server) -> str:
    line = await server.ready_line()
    assert line.startswith("specserve: ready on https://127.0.0.1:")
    return line.split()[-1]


async def test_clients_that_trust_the_certificate_are_served_and_plain_http_is_not(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str], issuer: Certificate, tmp_path: Path
) -> None:
    server = Server(engine, capsys, **options(make_certificate(tmp_path, "server", issuer)))
    url = await address(server)
    assert await get(url, issuer) == 200
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await get(url, make_certificate(tmp_path, "stranger"))
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(url.replace("https", "http"))
    await stop(server)


async def test_one_file_may_hold_the_certificate_and_its_key(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str], issuer: Certificate, tmp_path: Path
) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(issuer.key.read_bytes() + issuer.cert.read_bytes())
    server = Server(engine, capsys, tls_cert=str(both))
    assert await get(await address(server), issuer) == 200
    await stop(server)


async def test_with_a_ca_clients_need_a_certificate_of_it(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str], issuer: Certificate, tmp_path: Path
) -> None:
    server = Server(engine, capsys, **options(issuer, tls_ca=str(issuer.cert)))
    url = await address(server)
    assert await get(url, issuer, make_certificate(tmp_path, "client", issuer)) == 200
    for own in (None, make_certificate(tmp_path, "stranger")):
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await get(url, issuer, own)
    await stop(server)


async def test_a_hangup_replaces_the_certificate_and_a_pair_that_does_not_fit_changes_nothing(
    engine: FakeEngine,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    issuer: Certificate,
    tmp_path: Path,
) -> None:
    live, other = make_certificate(tmp_path, "live"), make_certificate(tmp_path, "other")
    server = Server(engine, capsys, **options(live))
    url = await address(server)
    shutil.copy(issuer.cert, live.cert)
    os.kill(os.getpid(), signal.SIGHUP)
    await until(lambda: "the TLS certificate and its key stay as they were" in caplog.text)
    assert "key values mismatch" in caplog.text
    shutil.copy(other.cert, live.cert)
    shutil.copy(other.key, live.key)
    os.kill(os.getpid(), signal.SIGHUP)
    await until(lambda: "the TLS certificate and its key were read again" in capsys.readouterr().err)
    assert await get(url, other) == 200
    await stop(server)


def test_wrong_files_are_named(issuer: Certificate, tmp_path: Path) -> None:
    text, encrypted = tmp_path / "text", tmp_path / "encrypted.key"
    text.write_text("no certificate\n")
    command = ["openssl", "ec", "-aes128", "-passout", "pass:word", "-in", str(issuer.key), "-out", str(encrypted)]
    subprocess.run(command, check=True, capture_output=True)
    cert = str(issuer.cert)
    key, stranger = str(issuer.key), make_certificate(tmp_path, "stranger")
    damaged, der = tmp_path / "damaged", tmp_path / "der"
    damaged.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    der.write_bytes(ssl.PEM_cert_to_DER_cert(issuer.cert.read_text()))
    none = f"{tmp_path}/none"
    for message, files in {
        f"tls_cert: {none} is not readable: No such file or directory.": {"tls_cert": none},
        f"tls_cert: {tmp_path} is not readable: Is a directory.": {"tls_cert": str(tmp_path)},
        f"tls_cert: {text} has no certificate in PEM form. Name the right file.": {"tls_cert": str(text)},
        f"tls_cert: {der} has no certificate in PEM form. It may be in DER form": {"tls_cert": str(der)},
        f"tls_cert: {key} has no certificate in PEM form. It has a private key, which belongs to tls_key.": {
            "tls_cert": key, "tls_key": cert
        },
        f"tls_cert: {cert} has no private key in PEM form. Add it to the certificate, or give tls_key.": {
            "tls_cert": cert
        },
        f"tls_key: {text} has no private key in PEM form. Name the right file.": {
            "tls_cert": cert, "tls_key": str(text)
        },
        f"tls_key: {none} is not readable: No such file or directory.": {"tls_cert": cert, "tls_key": none},
        f"tls_cert {cert} and tls_key {stranger.key}: this is the key of another certificate": {
            "tls_cert": cert, "tls_key": str(stranger.key)
        },
        f"tls_cert {damaged} and tls_key {key}: the certificate or the key is damaged: ": {
            "tls_cert": str(damaged), "tls_key": key
        },
        f"tls_key: {encrypted} is encrypted": {"tls_cert": cert, "tls_key": str(encrypted)},
        f"tls_ca: {text} has no certificate in PEM form.": options(issuer, tls_ca=str(text)),
        f"tls_ca: {none} is not readable: No such file": options(issuer, tls_ca=none),
    }.items():  # fmt: skip
        with pytest.raises(ConfigError, match=re.escape(message)):
            Tls(ServerConfig(**files))


@pytest.mark.parametrize("files", [{"tls_key": "k"}, {"tls_ca": "c"}, {"tls_cert": "c", "uds": "s"}])
def test_options_that_do_not_go_together_are_refused(files: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="tls_cert"):
        ServerConfig(**files)
