"""Whether traces are sent: the flag, the environment, and what is missing."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from typing import TYPE_CHECKING

import pytest

from server_process import serve_command
from specserve.errors import ConfigError
from specserve_server.config import ServerConfig
from specserve_server.traces.open_traces import open_traces
from specserve_server.traces.traces import NO_TRACES
from specserve_server.traces.wanted import DISTRIBUTIONS, traces_are_on, why_none_are_sent

if TYPE_CHECKING:
    from pathlib import Path

URL = "http://127.0.0.1:9/v1/traces"
WITHOUT, WITH = ServerConfig(), ServerConfig(otlp_traces_endpoint=URL)


@pytest.fixture(autouse=True)
def without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name in DISTRIBUTIONS:
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)


def test_nobody_who_asks_for_no_traces_gets_any() -> None:
    assert not traces_are_on(WITHOUT)
    assert open_traces(WITHOUT) is NO_TRACES
    assert why_none_are_sent(WITHOUT) is None


def test_the_flag_switches_them_on() -> None:
    traces = open_traces(WITH)
    assert traces.is_on
    traces.close()


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_a_variable_switches_them_on(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "")
    assert not traces_are_on(WITHOUT)
    monkeypatch.setenv(name, URL)
    assert traces_are_on(WITHOUT)


@pytest.mark.parametrize(("name", "value"), [("OTEL_SDK_DISABLED", "True"), ("OTEL_TRACES_EXPORTER", "none")])
def test_variables_that_switch_them_off_go_before_one_that_does_not(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", URL)
    monkeypatch.setenv(name, value)
    assert not traces_are_on(WITHOUT)
    assert why_none_are_sent(WITHOUT) is None


@pytest.mark.usefixtures("not_installed")
def test_the_flag_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"Run pip install 'specserve\[otel\]', or leave the flag out"):
        traces_are_on(WITH)


@pytest.mark.usefixtures("not_installed")
def test_a_variable_without_the_packages_is_a_note_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", URL)
    assert open_traces(WITHOUT) is NO_TRACES
    note = why_none_are_sent(WITHOUT)
    assert note is not None
    assert note.startswith("OTEL_EXPORTER_OTLP_ENDPOINT is set, but no traces are sent: traces need the package")


def test_grpc_is_told_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc', and only http/protobuf is served"):
        traces_are_on(WITH)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
    assert traces_are_on(WITH)


@pytest.mark.parametrize("wrong", ["", "localhost:4317", "grpc://localhost:4317", "http://", "http:///v1/traces"])
def test_an_endpoint_that_is_no_url_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="otlp_traces_endpoint must be a URL that begins with http"):
        ServerConfig(otlp_traces_endpoint=wrong)


WITHOUT_PACKAGES = """
import sys
from importlib import metadata
def version(name):
    raise metadata.PackageNotFoundError(name)
metadata.version = version
from specserve.__main__ import main
sys.exit(main())
"""


def test_the_command_ends_at_once_and_says_what_to_install(toy_model: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_PACKAGES, *serve_command(toy_model, "--otlp-traces-endpoint", URL)[3:]]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "specserve: error: --otlp-traces-endpoint: traces need the package opentelemetry-sdk" in ended.stderr
    assert "importing" not in ended.stderr


REFUSED = """
from specserve_server.config import ServerConfig
from specserve_server.traces.open_traces import open_traces
open_traces(ServerConfig(otlp_traces_endpoint="http://127.0.0.1:9"))
"""


def test_a_variable_that_opentelemetry_refuses_is_an_error_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_PROPAGATORS", "nonsense")
    ended = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True, check=False)
    message = ended.stderr.splitlines()[-1]
    assert message.startswith("specserve.errors.ConfigError: traces: OpenTelemetry raised ValueError")
    assert "nonsense" in message
    assert "Check the variables that begin with OTEL_" in message


IMPORTED = """
import sys
from specserve_server.app.application import make_app
from specserve_server.engine_process.__main__ import main
from specserve_server.config import ServerConfig
from specserve_server.traces.open_traces import open_traces
open_traces(ServerConfig())
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_nothing_of_opentelemetry_is_imported_where_traces_are_off() -> None:
    found = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
