"""Several processes behind one port answer as one: the same answers, the same stored responses, one count of all."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from servers_with_plugins import server_with_plugins
from shared_port import one_connection_each
from test_same_answers import BODIES, PROMPT, stable

from server_process import stopped_well
from specserve.errors import ConfigError
from specserve_server.app.middlewares.ended_requests import CLIENT_LEFT
from specserve_server.config import ServerConfig
from toy_adapters import write_adapter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from http.client import HTTPConnection
    from pathlib import Path

    from server_process import ServerProcess

NUM_PROCESSES = 3


@pytest.fixture(scope="module")
def server(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    flags = ("--http-processes", str(NUM_PROCESSES), "--access-log", "json")
    with stopped_well(server_with_plugins(toy_model, tmp_path_factory.mktemp("several"), *flags)) as started:
        yield started


@pytest.fixture
def connections(server: ServerProcess) -> Iterator[list[HTTPConnection]]:
    """One to each process, the first one first."""
    with one_connection_each(server) as found:
        yield list(found.values())


def ask(connection: HTTPConnection, method: str, path: str, body: Any = None) -> tuple[int, str, str | None]:
    data = None if body is None else json.dumps(body)
    connection.request(method, path, data, {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, response.read().decode(), response.headers.get("Content-Type")


def asked(connection: HTTPConnection, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Without what differs between two answers: how much of a prompt was cached, and who drafted."""
    status, text, kind = ask(connection, method, path, body)
    if kind is None or "json" not in kind:
        return status, text
    content = stable(json.loads(text))
    content.get("usage", {}).pop("prompt_tokens_details", None)
    for choice in content.get("choices", ()):
        choice.pop("accepted", None)
        choice.pop("drafted_by", None)
    return status, content


@pytest.fixture(scope="module")
def expected(one_process: ServerProcess) -> dict[str, tuple[int, Any]]:
    with one_connection_each(one_process) as found:
        (connection,) = found.values()
        return {name: asked(connection, "POST", path, body) for name, (path, body) in BODIES.items()}


@pytest.mark.parametrize("name", BODIES)
def test_every_process_answers_as_one_process_does(
    connections: list[HTTPConnection], expected: dict[str, tuple[int, Any]], name: str
) -> None:
    assert len(connections) == NUM_PROCESSES
    path, body = BODIES[name]
    assert [asked(connection, "POST", path, body) for connection in connections] == [expected[name]] * NUM_PROCESSES


def test_a_prefix_that_one_process_computed_is_cached_for_all(connections: list[HTTPConnection]) -> None:
    body = {"prompt": "a prefix of this test, which is longer than two blocks of tokens", "max_tokens": 1}
    cached = []
    for connection in connections:
        usage = json.loads(ask(connection, "POST", "/v1/completions", body)[1])["usage"]
        cached.append((usage["prompt_tokens_details"] or {}).get("cached_tokens", 0))
    assert cached[0] < 32 <= cached[1] == cached[2]


@pytest.mark.parametrize("path", ["/health", "/load", "/v1/models", "/get_server_info", "/v1/loads", "/nothing"])
def test_every_process_tells_the_same_of_the_server(connections: list[HTTPConnection], path: str) -> None:
    answers = [asked(connection, "GET", path) for connection in connections]
    for _, content in answers:
        content.pop("timestamp", None)
    assert answers == answers[:1] * NUM_PROCESSES


def test_a_head_request_that_is_passed_on_tells_the_length(connections: list[HTTPConnection]) -> None:
    lengths = []
    for connection in connections:
        connection.request("HEAD", "/health")
        response = connection.getresponse()
        assert response.read() == b""
        lengths.append(response.headers["Content-Length"])
    assert lengths == [str(len('{"status":"ready"}'))] * NUM_PROCESSES


def test_a_response_that_one_process_generated_is_found_by_all(connections: list[HTTPConnection]) -> None:
    for i, connection in enumerate(connections):
        body = {"input": PROMPT, "max_output_tokens": 16}
        status, text, _ = ask(connection, "POST", "/v1/responses", body)
        assert status == 200, text
        id = json.loads(text)["id"]
        for other in connections:
            assert ask(other, "GET", f"/v1/responses/{id}")[:2] == (200, text)
            body = {"input": "more", "previous_response_id": id, "max_output_tokens": 16, "stream": True}
            status, events, kind = ask(other, "POST", "/v1/responses", body)
            assert (status, kind) == (200, "text/event-stream; charset=utf-8"), events
            assert "response.completed" in events or "response.incomplete" in events
        assert ask(connections[i - 1], "DELETE", f"/v1/responses/{id}")[0] == 200
        for other in connections:
            assert ask(other, "GET", f"/v1/responses/{id}")[0] == 404


def test_an_adapter_that_one_process_loaded_is_served_by_all(
    server: ServerProcess, connections: list[HTTPConnection], toy_model: Path
) -> None:
    write_adapter(server.log.parent / "tuned", toy_model, seed=3, size=0.6)
    load = {"lora_name": "tuned", "lora_path": "tuned"}
    assert asked(connections[1], "POST", "/v1/load_lora_adapter", load)[0] == 200
    body = {"prompt": PROMPT, "max_tokens": 20, "temperature": 0, "model": "tuned"}
    answers = [asked(connection, "POST", "/v1/completions", body) for connection in connections]
    assert answers[0][0] == 200
    assert answers == answers[:1] * NUM_PROCESSES
    for connection, status in zip(connections, (200, 404, 404), strict=True):  # every process has released it
        assert asked(connection, "POST", "/v1/unload_lora_adapter", {"lora_name": "tuned"})[0] == status


def counts(connection: HTTPConnection) -> dict[str, float]:
    lines = ask(connection, "GET", "/metrics")[1].splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def of_route(found: dict[str, float], route: str, method: str = "POST") -> float:
    return sum(
        value
        for name, value in found.items()
        if f'method="{method}"' in name and f'route="{route}"' in name and "http_responses_total" in name
    )


def test_every_answer_is_counted_once(connections: list[HTTPConnection]) -> None:
    time.sleep(0.5)  # what was counted before is told by now
    before, n = counts(connections[0]), "vllm:request_params_n"
    for connection in connections:
        body = {"prompt": PROMPT, "max_tokens": 2, "n": 2}
        assert ask(connection, "POST", "/v1/completions", body)[0] == 200
        assert ask(connection, "POST", "/v1/responses", {"input": "a", "max_output_tokens": 16})[0] == 200
    deadline, last = time.monotonic() + 10, before
    while of_route(last, "/v1/completions") < of_route(before, "/v1/completions") + NUM_PROCESSES:
        assert time.monotonic() < deadline
        for connection in connections:
            found = counts(connection)
            assert [name for name in last if "_total" in name and found[name] < last[name]] == []
            last = found
    time.sleep(0.5)  # nothing comes twice
    after = counts(connections[1])
    for route in ("/v1/completions", "/v1/responses"):
        assert of_route(after, route) - of_route(before, route) == NUM_PROCESSES
    sums = [sum(value for name, value in found.items() if name.startswith(f"{n}_sum")) for found in (before, after)]
    assert sums[1] - sums[0] == 2 * NUM_PROCESSES
    scrapes = of_route(after, "/metrics", "GET")
    assert [of_route(counts(connection), "/metrics", "GET") for connection in connections] == [
        scrapes + i for i in range(1, NUM_PROCESSES + 1)
    ]


def test_the_access_log_has_a_line_for_each_request_with_its_client(
    server: ServerProcess, connections: list[HTTPConnection]
) -> None:
    for i, connection in enumerate(connections):
        for path in ("/v1/responses", "/tokenize"):
            body = json.dumps({"input": "a", "max_output_tokens": 16} if path == "/v1/responses" else {"prompt": "a"})
            headers = {"Content-Type": "application/json", "X-Request-Id": f"logged-{i}{path}"}
            connection.request("POST", path, body, {**headers, "X-Specserve-Client": "somebody"})
            assert connection.getresponse().read()
    lines = [json.loads(line) for line in server.lines_with("logged-", 2 * NUM_PROCESSES)]
    ids = [f"logged-{i}{path}" for i in range(NUM_PROCESSES) for path in ("/v1/responses", "/tokenize")]
    assert sorted(line["id"] for line in lines) == sorted(ids)
    assert {line["client"] for line in lines} == {"127.0.0.1"}
    assert all(line["completion_tokens"] > 0 for line in lines if "responses" in line["path"])


def leave(server: ServerProcess, attempt: int) -> list[int]:
    """Begin a response in every process and leave. The statuses that are logged."""
    with one_connection_each(server) as found:
        for i, connection in enumerate(found.values()):
            headers = {"Content-Type": "application/json", "X-Request-Id": f"left-{attempt}-{i}"}
            connection.request("POST", "/v1/responses", json.dumps({"input": "a", "stream": True}), headers)
            response = connection.getresponse()
            assert response.readline().startswith(b"event: ")
            response.close()
    return [json.loads(line)["status"] for line in server.lines_with(f"left-{attempt}-", NUM_PROCESSES)]


def test_a_client_that_leaves_a_response_is_noticed_wherever_it_came(server: ServerProcess) -> None:
    """A response may happen to be complete before its client has left, but not each time."""
    assert [CLIENT_LEFT] * NUM_PROCESSES in (leave(server, attempt) for attempt in range(100))


def test_a_port_that_several_processes_share_is_not_joined_by_another_server(
    server: ServerProcess, start_server: Callable[..., ServerProcess], toy_model: Path
) -> None:
    port = server.url.rpartition(":")[2]
    second = start_server(toy_model, "--http-processes", "2", "--port", port)
    assert second.wait() == 2
    assert f"cannot listen on 127.0.0.1:{port}: address already in use" in second.log.read_text()


@pytest.mark.parametrize(
    "option",
    [
        {"engine_process": False},
        {"uds": "s.sock"},
        {"max_requests_per_minute": 1},
        {"max_concurrent_requests_per_key": 1},
    ],
)
def test_what_several_processes_cannot_do_is_refused(option: dict[str, Any]) -> None:
    ServerConfig(**option)
    name = next(iter(option)).replace("engine_process", "--no-engine-process")
    with pytest.raises(ConfigError, match=f"http_processes above 1 .*{name}.* or leave http_processes at 1"):
        ServerConfig(http_processes=2, **option)
