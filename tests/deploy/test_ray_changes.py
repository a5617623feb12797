"""Changes of adapters and corpora: read, undone, kept for replicas that come later."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specserve_ray.change_log import MAX_REMOVALS, ChangeLog, MadeChange
from specserve_ray.change_routes import CORPORA, LOAD, UNLOAD, Change, inverse, read_change
from specserve_ray.wire import ForwardedRequest


def request(method: str, path: str, **body: Any) -> ForwardedRequest:
    headers = (("Authorization", "Bearer secret"), ("Content-Type", "application/json"))
    return ForwardedRequest(method, path, headers, json.dumps(body).encode() if body else b"")


def load(name: str, path: str = "dir", **more: Any) -> Change:
    found = read_change(request("POST", LOAD, lora_name=name, lora_path=path, **more))
    assert found is not None
    return found


def unload(name: str) -> Change:
    found = read_change(request("POST", UNLOAD, lora_name=name))
    assert found is not None
    return found


def test_changes_are_known_by_kind_and_name() -> None:
    corpus = read_change(request("POST", CORPORA, name="a b", documents=["x"]))
    removal = read_change(request("DELETE", f"{CORPORA}/a%20b"))
    assert corpus is not None
    assert removal is not None
    assert corpus.what == removal.what == "corpus a b"
    assert (corpus.removes, removal.removes) == (False, True)
    assert (load("docs").what, unload("docs").what) == ("adapter docs", "adapter docs")


def test_the_log_keeps_no_key_of_a_client() -> None:
    assert "secret" not in repr(load("docs"))


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", CORPORA, {}),
        ("GET", f"{CORPORA}/a", {}),
        ("POST", LOAD, {}),
        ("POST", LOAD, {"lora_name": 5}),
        ("POST", LOAD, {"name": "a"}),
        ("POST", "/v1/completions", {"lora_name": "a", "name": "a"}),
    ],
)
def test_what_changes_nothing_is_no_change(method: str, path: str, body: dict[str, Any]) -> None:
    assert read_change(request(method, path, **body)) is None


def test_a_load_is_undone_by_an_unload_and_the_other_way_round() -> None:
    undone = inverse(load("docs"), None)
    assert undone is not None
    assert (undone.request.path, json.loads(undone.request.body)) == (UNLOAD, {"lora_name": "docs"})
    again = inverse(unload("docs"), load("docs", "there"))
    assert again is not None
    assert json.loads(again.request.body) == {"lora_name": "docs", "lora_path": "there", "load_inplace": True}


def test_a_replacement_is_undone_by_the_version_before() -> None:
    undone = inverse(load("docs", "new", load_inplace=True), load("docs", "old"))
    assert undone is not None
    assert json.loads(undone.request.body)["lora_path"] == "old"


def test_what_the_configuration_may_have_loaded_cannot_be_undone() -> None:
    assert inverse(unload("docs"), None) is None
    assert inverse(load("docs", load_inplace=True), None) is None
    assert inverse(load("docs", load_inplace=True), unload("docs")) is None


def test_a_corpus_is_undone_by_its_removal() -> None:
    change = read_change(request("POST", CORPORA, name="a/b", documents=["x"]))
    assert change is not None
    undone = inverse(change, None)
    assert undone is not None
    assert (undone.request.method, undone.request.path) == ("DELETE", f"{CORPORA}/a%2Fb")
    assert read_change(undone.request) == undone


def test_a_removal_of_what_is_not_there_is_made() -> None:
    assert unload("docs").is_made_by(404)
    assert not load("docs").is_made_by(404)
    assert not load("docs").is_made_by(409)
    assert load("docs").is_made_by(200)


def test_a_later_replica_makes_the_last_change_of_each_name_in_order() -> None:
    log = ChangeLog()
    for number, change in enumerate((load("a", "1"), load("b"), unload("b"), load("a", "2", load_inplace=True)), 1):
        log.add(MadeChange(number, change))
    assert [(made.number, made.change.what) for made in log.since(0)] == [(3, "adapter b"), (4, "adapter a")]
    assert [made.number for made in log.since(3)] == [4]
    last = log.last("adapter b")
    assert last is not None
    assert last.removes


def test_a_change_that_is_known_already_changes_nothing() -> None:
    log = ChangeLog()
    log.add(MadeChange(1, load("a")))
    log.add(MadeChange(2, unload("a")))
    log.add(MadeChange(1, load("a")))
    assert (log.number, [made.number for made in log.since(0)]) == (2, [2])


def test_removals_are_dropped_in_the_end() -> None:
    log = ChangeLog()
    for number in range(1, 2 * MAX_REMOVALS + 1):
        log.add(MadeChange(number, unload(str(number))))
    log.add(MadeChange(log.number + 1, load("kept")))
    assert len(log.made) == MAX_REMOVALS + 1
    assert log.last("adapter kept") is not None
