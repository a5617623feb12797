"""What prepares requests has a lower priority than what computes, and than the event loop."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from serve_task import Server, stop

from specserve_server.app.preparing_threads import preparing_threads

if TYPE_CHECKING:
    from fake_engine import FakeEngine


def priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_requests_are_prepared_at_a_low_priority(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    seen: list[int] = []
    check = engine.check

    def checked(request: Any) -> None:
        seen.append(priority())
        check(request)

    monkeypatch.setattr(engine, "check", checked)
    server = Server(engine, capsys)
    before = priority()
    async with server.session() as session:
        body = {"prompt": "a"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "a"}]}
        async with session.post(path, json=body) as response:
            assert response.status == 200
    await stop(server)
    assert seen == [min(before + 10, 19)]
    assert priority() == before


def forbidden(*arguments: object) -> NoReturn:
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize("call", ["setpriority", "getpriority"])
def test_requests_are_prepared_where_a_sandbox_forbids_priorities(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    monkeypatch.setattr(os, call, forbidden)
    with preparing_threads() as threads:
        assert threads.submit(len, "ab").result() == 2


def test_requests_are_prepared_where_threads_have_no_priorities_as_on_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "setpriority", forbidden)
    monkeypatch.setattr(sys, "platform", "darwin")
    with preparing_threads() as threads:
        assert threads.submit(priority).result() == priority()
