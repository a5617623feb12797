"""Streams whose events have names, read byte by byte."""

from __future__ import annotations

import json
from typing import Any


async def named_events(client: Any, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Each event's name is its type, and nothing is between or behind them."""
    response = await client.post(path, json={**body, "stream": True})
    assert response.status == 200, await response.text()
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    *blocks, rest = (await response.read()).decode().split("\n\n")
    assert rest == ""
    events = []
    for block in blocks:
        name, data = block.split("\n")
        assert data.startswith("data: ")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events
