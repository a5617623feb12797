"""Processes that share a port end: one of them, all after a signal, and all with the engine or the first process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import time
from contextlib import suppress
from http.client import IncompleteRead
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from certificates import make_certificate
from shared_port import one_connection_each
from test_deaths import ENDLESS

from process_table import is_running, wait_until_gone

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.client import HTTPConnection, HTTPResponse
    from pathlib import Path

    from server_process import ServerProcess

    Start = Callable[..., ServerProcess]


def begin(connection: HTTPConnection, body: dict[str, Any], path: str = "/v1/completions") -> HTTPResponse:
    """A stream whose first line has come."""
    headers = {"Content-Type": "application/json", "Authorization": "Bearer a-key"}
    connection.request("POST", path, json.dumps({**body, "stream": True}), headers)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    assert response.readline()
    return response


def rest_of(response: HTTPResponse) -> str:
    return response.read().decode()


def last_event(text: str) -> dict[str, Any]:
    """Before [DONE]."""
    *_, last, done = (line for line in text.splitlines() if line)
    assert done == "data: [DONE]"
    event: dict[str, Any] = json.loads(last.removeprefix("data: "))
    return event


async def until_load(server: ServerProcess, count: int) -> None:
    """As any of its processes tells it."""
    async with asyncio.timeout(60):
        while True:
            async with aiohttp.ClientSession(server.url) as session, session.get("/load") as response:
                if (await response.json())["server_load"] == count:
                    return
            await asyncio.sleep(0.01)


async def test_a_killed_process_costs_only_its_own_streams_and_another_one_starts(
    start_server: Start, long_model: Path
) -> None:
    server = start_server(long_model, "--http-processes", "2")
    await asyncio.to_thread(server.wait_until_ready)
    with one_connection_each(server) as found:
        of_first, of_further = (begin(connection, ENDLESS) for connection in found.values())
        first, further = found
        await until_load(server, 2)
        os.kill(further, signal.SIGKILL)
        with pytest.raises((ConnectionResetError, IncompleteRead)):
            rest_of(of_further)
        await until_load(server, 1)
        assert of_first.readline() == b"\n"
        assert of_first.readline().startswith(b"data: {")
        assert first in server.http_pids
        assert further not in server.http_pids
        (line,) = await asyncio.to_thread(server.lines_with, str(further))
        assert "was ended by SIGKILL" in line
        assert "another one is started" in line
        async with asyncio.timeout(60):
            while server.http_pids == {first}:
                await asyncio.sleep(0.05)
        with one_connection_each(server) as found_later:
            later = begin(list(found_later.values())[1], ENDLESS)
            assert further not in found_later
            os.kill(server.engine_pid, signal.SIGKILL)
            for stream in (of_first, later):
                error = last_event(rest_of(stream))["error"]
                assert error["message"].startswith("the engine died: its process was ended by SIGKILL")
    assert await asyncio.to_thread(server.wait) == 1
    assert not [pid for pid in (*found, *found_later) if is_running(pid)]
    assert server.log.read_text().count("another one is started") == 1
    assert "Traceback" not in server.log.read_text()


def test_a_process_that_cannot_start_ends_the_server(start_server: Start, long_model: Path, tmp_path: Path) -> None:
    fault = "import os, sys\nif any('http_process' in word for word in sys.orig_argv): os._exit(7)\n"
    (tmp_path / "sitecustomize.py").write_text(fault)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        server = start_server(long_model, "--http-processes", "2")
    assert server.wait() == 1
    assert "a further HTTP process could not be started: it ended with exit code 7" in server.log.read_text()
    assert server.process.stdout is not None
    assert server.process.stdout.read() == "", "it was never ready"


async def test_a_first_process_that_is_killed_leaves_none(start_server: Start, long_model: Path) -> None:
    server = start_server(long_model, "--http-processes", "2")
    await asyncio.to_thread(server.wait_until_ready)
    pids = [server.engine_pid, *server.http_pids]
    with one_connection_each(server) as found:
        streams = [begin(connection, ENDLESS) for connection in found.values()]
        server.process.kill()
        for stream in streams:
            with pytest.raises((ConnectionResetError, IncompleteRead)):
                rest_of(stream)
    server.wait()
    wait_until_gone(pids)


async def until_all_are_trusted(server: ServerProcess, trusted: ssl.SSLContext, headers: dict[str, str]) -> None:
    """A further process reads its certificate again somewhat later than the first one."""
    async with asyncio.timeout(60):
        while True:
            with suppress(ssl.SSLError), one_connection_each(server, trusted, headers):
                return
            await asyncio.sleep(0.05)


async def test_new_keys_and_certificates_reach_all_processes_and_draining_loses_nothing(
    start_server: Start, long_model: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("an-old-key\n")
    made = make_certificate(tmp_path, "one")
    flags = ("--tls-cert", str(made.cert), "--tls-key", str(made.key), "--api-key-file", str(keys))
    server = start_server(long_model, "--http-processes", "2", *flags, "--drain-wait", "0.5")
    await asyncio.to_thread(server.wait_until_ready)
    keys.write_text("a-key\n")
    other = make_certificate(tmp_path, "other")
    for new, old in zip(other, made, strict=True):
        old.write_bytes(new.read_bytes())
    server.process.send_signal(signal.SIGHUP)
    await asyncio.to_thread(server.lines_with, "the TLS certificate and its key were read again")
    trusted = ssl.create_default_context(cafile=str(other.cert))
    await until_all_are_trusted(server, trusted, {"Authorization": "Bearer a-key"})
    with one_connection_each(server, trusted, {"Authorization": "Bearer a-key"}) as found:
        body = {"prompt": "one two", "max_tokens": 3000, "ignore_eos": True}
        streams = [begin(connection, body) for connection in found.values()]
        pids = list(found)
        with one_connection_each(server, trusted, {"Authorization": "Bearer a-key"}) as more:
            stored = {"input": "a", "max_output_tokens": 1500}
            streams += [begin(connection, stored, "/v1/responses") for connection in more.values()]
            with one_connection_each(server, trusted, {"Authorization": "Bearer a-key"}) as health:
                server.process.send_signal(signal.SIGTERM)
                for connection in health.values():
                    while status_of(connection, "/health") != 503:
                        await asyncio.sleep(0.01)
            for stream in streams[:2]:
                text = await asyncio.to_thread(rest_of, stream)
                assert last_event(text)["choices"][0]["finish_reason"] == "length"
            for stream in streams[2:]:
                text = await asyncio.to_thread(rest_of, stream)
                assert "response.completed" in text or "response.incomplete" in text, text[-500:]
    assert await asyncio.to_thread(server.wait) == 0
    assert not [pid for pid in pids if is_running(pid)]
    assert not [text for text in ("Traceback", "another one is started") if text in server.log.read_text()]


def status_of(connection: HTTPConnection, path: str) -> int:
    connection.request("GET", path)
    response = connection.getresponse()
    response.read()
    return response.status


async def test_a_second_signal_aborts_in_all_processes(start_server: Start, long_model: Path) -> None:
    server = start_server(long_model, "--http-processes", "2")
    await asyncio.to_thread(server.wait_until_ready)
    with one_connection_each(server) as found:
        streams = [begin(connection, ENDLESS) for connection in found.values()]
        pids = list(found)
        began = time.monotonic()
        for _ in range(2):  # the terminal's: all processes get it
            os.killpg(server.process.pid, signal.SIGINT)
            await asyncio.sleep(0.3)
        for stream in streams:
            assert last_event(rest_of(stream))["error"]["code"] == "shutting_down"
    assert await asyncio.to_thread(server.wait) == 0
    assert time.monotonic() - began < 8
    assert not [pid for pid in pids if is_running(pid)]
    assert "Traceback" not in server.log.read_text()
