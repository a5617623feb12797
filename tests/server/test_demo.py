"""What `make demo` does around the server: reading events, reporting, and saying why it failed."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def demo() -> Any:
    path = Path(__file__).parents[2] / "demo" / "run_demo.py"
    spec = importlib.util.spec_from_file_location("run_demo", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_events_are_read_and_errors_are_raised(demo: Any) -> None:
    assert demo.parse_event(b'data: {"choices": []}\n') == {"choices": []}
    assert demo.parse_event(b"\n") is None
    assert demo.parse_event(b"data: [DONE]\n") is None
    with pytest.raises(demo.DemoError, match="boom"):
        demo.parse_event(b'data: {"error": {"message": "boom"}}\n')


def test_the_report_has_speed_and_first_token_time(demo: Any, capsys: pytest.CaptureFixture[str]) -> None:
    demo.report({"usage": {"completion_tokens": 11}}, 0.5, 1.5)
    out = capsys.readouterr().out
    assert "time to first token 500 ms" in out
    assert "10.0 tokens/s" in out
    with pytest.raises(demo.DemoError, match="usage"):
        demo.report({}, 0.5, 1.5)


async def test_a_server_that_dies_is_shown_with_its_log(
    demo: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "SPECSERVE", [sys.executable, "-c", "print('out of luck'); raise SystemExit(3)"])
    assert await demo.main([]) == 1
    err = capsys.readouterr().err
    assert "exit code 3" in err
    assert "out of luck" in err


def test_a_signal_ends_the_demo_and_its_server(demo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[bool] = []

    async def main(options: list[str]) -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    monkeypatch.setattr(demo, "main", main)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert demo.run([]) == 130
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended == [True]
