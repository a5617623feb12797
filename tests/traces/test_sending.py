"""How spans are sent, and what happens where nobody takes them."""

from __future__ import annotations

import logging
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
from collector import Collector
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from specserve_server.traces.exporter import SDK_LOGGER, ToldOnce
from specserve_server.traces.provider import CLOSE_SECONDS, Provider, resource, with_path
from specserve_server.traces.wall_clock import STEP, WallClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan


MOST_SECONDS = CLOSE_SECONDS + 5.0
"""Of the end, on a busy machine. A try to send alone may take the exporter 10."""


@pytest.fixture(autouse=True)
def every_line_is_heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger=SDK_LOGGER.name)


def a_span(provider: Provider) -> None:
    provider.tracer.start_span("a span").end()


def refused_url() -> str:
    """Of a port on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


class Unreliable(SpanExporter):
    """Each `export` has the next of these results, and says why as the SDK does."""

    def __init__(self, *results: SpanExportResult) -> None:
        self.results = list(results)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self.results.pop(0)
        if result is SpanExportResult.FAILURE:
            SDK_LOGGER.warning("Transient error %s", "nobody is there")
            SDK_LOGGER.error("Failed to export")
        return result


def test_what_waits_is_sent_at_the_end() -> None:
    with Collector() as collector:
        provider = Provider.to(collector.url)
        a_span(provider)
        assert not collector.spans
        provider.close()
        assert [span.name for span in collector.spans] == ["a span"]


def test_the_environment_says_where_headers_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.version=7")
        provider = Provider.to(None)
        a_span(provider)
        provider.close()
        (span,) = collector.spans
    assert collector.paths == {"/v1/traces"}
    assert span.resource["service.name"] == "mine"
    assert span.resource["deployment.environment.name"] == "test"
    assert span.resource["service.version"] == "7"


def test_the_service_is_called_specserve_where_nobody_names_it() -> None:
    assert resource().attributes["service.name"] == "specserve"


def test_a_url_without_a_path_gets_that_of_otlp() -> None:
    urls = ("http://a:1", "http://a:1/", "http://a:1/v1/traces", "https://a/other/")
    assert [with_path(url) for url in urls] == ["http://a:1/v1/traces", "http://a:1/v1/traces", *urls[2:]]


def test_a_failure_is_told_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    failure, success = SpanExportResult.FAILURE, SpanExportResult.SUCCESS
    exporter = ToldOnce(Unreliable(success, failure, failure, failure, success, success, failure))
    with Collector() as collector:
        provider = Provider.to(collector.url)
        span = provider.tracer.start_span("a span")
        provider.close()
    assert len([exporter.export([span, span]) for _ in range(6)]) == 6  # type: ignore[list-item]
    assert [(record.name.startswith("specserve"), record.getMessage()) for record in caplog.records] == [
        (True, "traces cannot be sent, and requests go on without: Failed to export"),
        (True, "traces are sent again; 6 spans are lost"),
    ]
    exporter.export([span])  # type: ignore[list-item]
    exporter.shutdown()
    assert len(caplog.records) == 3
    SDK_LOGGER.warning("is heard again")
    assert caplog.records[-1].getMessage() == "is heard again"


def test_a_collector_that_is_not_there_holds_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    provider = Provider.to(refused_url())
    began = time.monotonic()
    for _ in range(100):
        a_span(provider)
    assert time.monotonic() - began < 1
    provider.close()
    assert time.monotonic() - began < MOST_SECONDS
    assert not [record for record in caplog.records if not record.name.startswith("specserve")]


def test_a_collector_that_does_not_answer_holds_up_nobody_at_the_end() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        provider = Provider.to(f"http://127.0.0.1:{silent.getsockname()[1]}")
        a_span(provider)
        began = time.monotonic()
        provider.close()
        assert time.monotonic() - began < MOST_SECONDS


def test_threads_of_the_sdk_keep_no_process_alive() -> None:
    provider = Provider.to(refused_url())
    a_span(provider)
    provider.close()
    assert not [thread for thread in threading.enumerate() if "Otel" in thread.name and not thread.daemon]


def test_a_time_is_that_of_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = WallClock()
    assert abs(clock.now() - time.time_ns()) < 1e9
    assert clock.at(5.25) - clock.at(5.0) == 250_000_000
    before, real = clock.now(), time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + STEP // 2)
    assert clock.now() - before < 1e9
    assert abs(clock.offset - WallClock().offset) > STEP // 4
    monkeypatch.setattr(time, "time_ns", lambda: real() + 3600 * 10**9)
    assert 3600e9 <= clock.now() - before < 3610e9
