"""Traces of servers whose processes pass requests on, die, or find no collector."""

from __future__ import annotations

import json
import os
import secrets
import signal
from http.client import HTTPConnection, HTTPResponse
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from collector import ERROR
from shared_port import one_connection_each
from test_sending import refused_url
from traced_forms import FORMS, SOON

from server_process import ServerProcess, serve_command, stopped_well

if TYPE_CHECKING:
    from pathlib import Path

    from collector import Collector

ENDLESS = {"prompt": "one two", "max_tokens": 1900, "ignore_eos": True, "temperature": 1, "stream": True}


def started(model: Path, log: Path, form: str, url: str) -> ServerProcess:
    command = serve_command(model, "--threads", "1", *FORMS[form], "--otlp-traces-endpoint", url)
    return ServerProcess(command, log, variables=SOON)


def post(connection: HTTPConnection, path: str, body: dict[str, Any]) -> tuple[str, HTTPResponse]:
    """The trace that it was sent under, and the response."""
    trace = secrets.token_hex(16)
    headers = {"Content-Type": "application/json", "traceparent": f"00-{trace}-{secrets.token_hex(8)}-01"}
    connection.request("POST", path, json.dumps(body), headers)
    return trace, connection.getresponse()


def test_a_request_has_one_span_whichever_process_gets_it_and_passes_it_on(
    toy_model: Path, tmp_path: Path, collector: Collector
) -> None:
    with (
        stopped_well(started(toy_model, tmp_path / "log", "three processes", collector.url)) as server,
        one_connection_each(server) as connections,
    ):
        assert len(connections) == 3
        for connection in connections.values():
            for path, body in {
                "/v1/completions": {"prompt": "one two", "max_tokens": 4, "ignore_eos": True},
                "/v1/responses": {"input": "one two", "max_output_tokens": 16},
            }.items():
                trace, response = post(connection, path, body)
                assert response.read()
                assert response.status == 200
                names = [span.name.partition(" ")[0] for span in collector.of_trace(trace, 4)]
                assert names[1:] == ["queue", "prefill", "decode"]
                assert names[0] in ("chat", "text_completion")


def test_an_engine_that_dies_is_an_error_of_its_requests(toy_model: Path, tmp_path: Path, collector: Collector) -> None:
    with started(toy_model, tmp_path / "log", "engine process", collector.url) as server:
        url = urlsplit(server.url)
        connection = HTTPConnection(url.hostname or "", url.port, timeout=60)
        trace, response = post(connection, "/v1/completions", ENDLESS)
        response.readline()
        os.kill(server.engine_pid, signal.SIGKILL)
        response.read()
        connection.close()
        (root,) = collector.of_trace(trace, 1)
    assert (root.status, root.message, root.attributes["error.type"]) == (ERROR, "", "engine_dead")
    assert [event.attributes for event in root.events] == [{"exception.type": "EngineDeadError"}]
    assert "specserve.client_disconnected" not in root.attributes


@pytest.mark.parametrize("form", ["direct", "engine process"])
def test_a_server_without_a_collector_serves_and_ends_as_ever(toy_model: Path, tmp_path: Path, form: str) -> None:
    log = tmp_path / "log"
    with stopped_well(started(toy_model, log, form, refused_url())) as server:
        url = urlsplit(server.url)
        connection = HTTPConnection(url.hostname or "", url.port, timeout=60)
        for _ in range(20):
            _, response = post(connection, "/v1/completions", {"prompt": "one two", "max_tokens": 2})
            assert response.read()
            assert response.status == 200
        connection.close()
    num_processes = 1 if form == "direct" else 2
    assert log.read_text().count("traces cannot be sent, and requests go on without") <= num_processes
    assert "opentelemetry" not in log.read_text()
