"""The requests that change what replicas serve, adapters and n-gram corpora, and how each is undone.

Knows their paths and the names in their bodies; whether a replica accepts them, it says itself.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

import msgspec

from specserve_ray.wire import ForwardedRequest

LOAD, UNLOAD, CORPORA = "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/ngram/corpora"
JSON_HEADERS = (("Content-Type", "application/json"),)
NOT_FOUND = 404


class Named(msgspec.Struct, frozen=True):
    """What is read of such a body; anything else may be in it."""

    lora_name: msgspec.Raw = msgspec.Raw()
    load_inplace: msgspec.Raw = msgspec.Raw()
    name: msgspec.Raw = msgspec.Raw()


class Change(msgspec.Struct, frozen=True):
    request: ForwardedRequest
    """Without the client's headers: a replica that makes the change later does so in a name of its own."""
    kind: str
    name: str
    removes: bool
    replaces: bool = False
    """It may replace what has the name."""

    @property
    def what(self) -> str:
        return f"{self.kind} {self.name}"

    def is_made_by(self, status: int) -> bool:
        """Whether a replica that has answered so is as the change wants it, where the change is made again."""
        return 200 <= status < 300 or (self.removes and status == NOT_FOUND)


def read_change(request: ForwardedRequest) -> Change | None:
    """None for what changes nothing, and for what names nothing, which every replica refuses."""
    path = request.path.partition("?")[0]
    bare = msgspec.structs.replace(request, headers=JSON_HEADERS)
    if request.method == "DELETE" and path.startswith(f"{CORPORA}/"):
        return Change(bare, "corpus", unquote(path.removeprefix(f"{CORPORA}/")), removes=True)
    if request.method != "POST" or path not in (LOAD, UNLOAD, CORPORA):
        return None
    try:
        body = msgspec.json.decode(request.body, type=Named)
        name = msgspec.json.decode(body.name if path == CORPORA else body.lora_name, type=str)
    except msgspec.DecodeError:
        return None
    kind = "corpus" if path == CORPORA else "adapter"
    return Change(bare, kind, name, removes=path == UNLOAD, replaces=bytes(body.load_inplace) == b"true")


def inverse(change: Change, previous: Change | None) -> Change | None:
    """What makes a replica as it was before, where `previous` is the last change of the same name. None where that is
    not known: the name is then of the configuration."""
    if previous is not None and not previous.removes:
        return again(previous)
    if change.removes or change.replaces:
        return None
    return removal_of(change)


def again(change: Change) -> Change:
    """For a replica that may have it in another version."""
    if change.kind != "adapter":
        return change
    body = msgspec.json.decode(change.request.body, type=dict[str, object])
    data = msgspec.json.encode({**body, "load_inplace": True})
    return msgspec.structs.replace(change, request=msgspec.structs.replace(change.request, body=data), replaces=True)


def removal_of(change: Change) -> Change:
    if change.kind == "adapter":
        body = msgspec.json.encode({"lora_name": change.name})
        request = ForwardedRequest("POST", UNLOAD, JSON_HEADERS, body)
    else:
        request = ForwardedRequest("DELETE", f"{CORPORA}/{quote(change.name, safe='')}", JSON_HEADERS, b"")
    return Change(request, change.kind, change.name, removes=True)
