"""Texts that pass through the ingress: merged metrics, headers, errors."""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from specserve_ray.errors import error_answer, explained, last_event
from specserve_ray.metrics_text import merge_metrics
from specserve_ray.replica_stats import ReplicaStats, from_table, to_table
from specserve_ray.wire import Answer, Head
from specserve_server.wire.end_to_end_headers import end_to_end

METRICS = """# HELP a_total Things
# TYPE a_total counter
a_total {n}.0
# HELP vllm:b Others
# TYPE vllm:b gauge
vllm:b{{engine="0",name="x{{y z"}} {n}.5
"""


def test_each_sample_says_of_which_replica_it_is() -> None:
    text = merge_metrics({"r1": METRICS.format(n=1), "r2": METRICS.format(n=2)})
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = [(sample.name, sample.labels, sample.value) for sample in samples]
    other = {"engine": "0", "name": "x{y z"}
    assert found == [
        ("a_total", {"replica": "r1"}, 1.0),
        ("a_total", {"replica": "r2"}, 2.0),
        ("vllm:b", {"replica": "r1", **other}, 1.5),
        ("vllm:b", {"replica": "r2", **other}, 2.5),
    ]


def test_a_family_stands_together_and_is_explained_once() -> None:
    lines = merge_metrics({"r1": METRICS.format(n=1), "r2": METRICS.format(n=2)}).splitlines()
    assert [line.split()[1] for line in lines if line.startswith("#")] == ["HELP", "TYPE"] * 2
    assert [line.partition("{")[0] for line in lines[2:4]] == ["a_total"] * 2


def test_a_family_that_one_replica_has_is_kept() -> None:
    assert 'c{replica="r2"} 1' in merge_metrics({"r1": "", "r2": "c{} 1\n"})


def test_headers_of_a_connection_end_with_it() -> None:
    given = [
        ("Host", "h"),
        ("Connection", "close, X-Hop"),
        ("X-Hop", "1"),
        ("Transfer-Encoding", "chunked"),
        ("A", "1"),
        ("a", "2"),
    ]
    assert end_to_end(given, without=("host",)) == (("A", "1"), ("a", "2"))


def test_an_answer_of_none_is_one_that_clients_repeat() -> None:
    answer = error_answer("none is ready.", "/v1/completions")
    assert (answer.head.status, dict(answer.head.headers)["Retry-After"]) == (503, "1")
    assert json.loads(answer.body)["error"] == {
        "message": "none is ready.", "type": "service_unavailable_error", "param": None, "code": "unavailable"
    }  # fmt: skip
    assert json.loads(error_answer("x", "/v1/messages").body)["error"]["type"] == "overloaded_error"


@pytest.mark.parametrize(
    ("path", "name", "message"),
    [
        ("/v1/completions", None, lambda body: body["error"]["message"]),
        ("/v1/messages", "error", lambda body: body["error"]["message"]),
        ("/v1/responses", "error", lambda body: body["message"]),
    ],
)
def test_a_stream_ends_with_an_error_of_its_api(path, name, message) -> None:
    event = last_event("it died.", path, b'data: {"sequence_number":7}\n\n').decode()
    *first, data, end, _ = event.split("\n")
    assert first == ([] if name is None else [f"event: {name}"])
    body = json.loads(data.removeprefix("data: "))
    assert message(body) == "it died."
    assert body.get("sequence_number", 8) == 8
    assert end == ""


def test_an_event_that_broke_off_is_ended_first() -> None:
    assert last_event("x", "/v1/completions", b'data: {"id"').startswith(b"\n\ndata: ")


def test_a_sentence_is_added_to_an_error() -> None:
    head = Head(409, (("Content-Length", "99"), ("A", "1")), "r1")
    found = explained(Answer(head, b'{"error":{"message":"No.","code":null}}'), "It was undone.")
    assert json.loads(found.body) == {"error": {"message": "No. It was undone.", "code": None}}
    assert found.head.headers == (("A", "1"),)
    text = Answer(head, b"not json")
    assert explained(text, "more") == text


def test_reports_of_another_version_are_read() -> None:
    stats = ReplicaStats(number=3, num_requests=2, adapters=("a",))
    table = to_table(stats)
    assert from_table({**table, "new": 1}) == stats
    del table["num_requests"]
    assert from_table(table).num_requests == 0
    assert from_table({}) == ReplicaStats()
