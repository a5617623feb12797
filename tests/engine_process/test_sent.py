"""What crosses between the server and the engine's process arrives as it was."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from specserve.errors import (
    EngineDeadError,
    ModelError,
    ModelNotFoundError,
    QueueFullError,
    RequestError,
    ShuttingDownError,
)
from specserve.metrics import AdapterUse, CacheInfo, EngineMetrics, Histogram
from specserve.protocols import Metric
from specserve.types import RequestOutput
from specserve_server.engine_answers import EngineState
from specserve_server.engine_process import frames
from specserve_server.engine_process.channel import Channel
from specserve_server.engine_process.host import Outbox
from specserve_server.engine_process.sent_errors import received, sent
from specserve_server.engine_process.sent_state import SentState, received_state, sent_state
from specserve_server.errors import GenerationError, create_error_response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class TeapotError(RequestError):
    """A plugin's own."""

    status = 418
    type = "teapot_error"


@pytest.mark.parametrize(
    "error",
    [
        RequestError("a", param="prompt", code="c"),
        ModelNotFoundError("b"),
        QueueFullError("full", retry_after=7),
        TeapotError("t", param="x"),
        EngineDeadError("dead"),
        ShuttingDownError("leaving"),
        GenerationError("failed"),
        ModelError("no model"),
        ZeroDivisionError("a fault"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_answered_as_in_one_process(error: Exception) -> None:
    crossed = received(msgspec.msgpack.decode(msgspec.msgpack.encode(sent(error)), type=type(sent(error))))
    assert create_error_response(crossed) == create_error_response(error)
    assert isinstance(crossed, RequestError) == isinstance(error, RequestError)


def filled_metrics() -> EngineMetrics:
    """Every field with something in it."""
    metrics = EngineMetrics()
    for number, field in enumerate(fields(EngineMetrics), 1):
        value = getattr(metrics, field.name)
        if isinstance(value, Histogram):
            value.add(number * 0.01, 3)
        elif isinstance(value, set):
            value.add("ngram")
        elif isinstance(value, int | float):
            setattr(metrics, field.name, type(value)(number))
    metrics.request_success["stop"] += 2
    metrics.accepted_per_position[3] += 4
    metrics.draft_tokens_by_drafter["ngram"] += 1
    metrics.accepted_tokens_by_drafter["ngram"] += 1
    metrics.drafter_faults["ngram", "raised"] += 1
    metrics.graph_steps["full", ""] += 1  # type: ignore[index]
    metrics.graph_draft_passes["none", "off"] += 1  # type: ignore[index]
    metrics.faults.counts["lora", "observer", "raised"] += 1
    metrics.faults.disabled.add(("lora", "observer"))
    return metrics


def plain(value: Any) -> Any:
    if isinstance(value, Histogram):
        return value.bounds, value.counts, value.total
    return (value.counts, value.disabled) if hasattr(value, "disabled") else value


def test_metrics_cross_with_every_field() -> None:
    metrics = filled_metrics()
    state = EngineState(
        metrics, [Metric("a", "b", "gauge", 1.5, (("c", "d"),))], AdapterUse(4, ("x",), ()),
        CacheInfo(16, 9, "float32", True), {"model": "m", "config": {"a": [1, None]}}, [{"name": "ngram"}], 7, 3,
    )  # fmt: skip
    crossed = received_state(msgspec.msgpack.decode(msgspec.msgpack.encode(sent_state(state)), type=SentState))
    for field in fields(EngineMetrics):
        found, expected = (plain(getattr(each, field.name)) for each in (crossed.metrics, metrics))
        assert found == expected, field.name
        assert found != plain(getattr(EngineMetrics(), field.name)), f"{field.name}: the test fills it"
    assert crossed[1:] == state[1:]


@pytest.fixture
async def raw() -> AsyncIterator[tuple[Any, socket.socket, list[Any]]]:
    """A channel, the other end, and the frames that arrived."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    arrived: list[Any] = []
    channel: Channel[Any] = await Channel.connect(ours, frames.FromServer, arrived.append)
    yield channel, theirs, arrived
    channel.close()
    theirs.close()
    await channel.lost


async def test_frames_arrive_whole_however_they_are_cut(raw: tuple[Any, socket.socket, list[Any]]) -> None:
    _, theirs, arrived = raw
    sent_frames = [frames.Abort(n) for n in range(40)] + [frames.ResolveModel(1, "x" * 500)]
    data = b"".join(len(one).to_bytes(4, "big") + one for one in map(msgspec.msgpack.encode, sent_frames))
    for begin in range(0, len(data), 7):
        await asyncio.get_running_loop().sock_sendall(theirs, data[begin : begin + 7])
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        while len(arrived) < len(sent_frames):
            await asyncio.sleep(0.001)
    assert arrived == sent_frames


async def test_a_server_that_reads_slowly_gets_outputs_merged(raw: tuple[Any, socket.socket, list[Any]]) -> None:
    unsent: list[Outbox] = []
    outbox = Outbox(1, "a", unsent.append)
    for token in range(5):
        outbox.put(RequestOutput("a", (token,)))
    outbox.put(RequestOutput("a", (9,), "stop"))
    assert isinstance(outbox.content, RequestOutput)
    assert (outbox.content.tokens, outbox.content.finish_reason) == ((0, 1, 2, 3, 4, 9), "stop")
    channel, theirs, _ = raw
    while not channel.is_congested:
        channel.send(frames.LoadFailed(sent(RequestError("x" * 10_000))))
    relieved = asyncio.Event()
    channel.on_relief = relieved.set
    async with asyncio.timeout(10):
        while not relieved.is_set():
            await asyncio.get_running_loop().sock_recv(theirs, 1 << 20)
    assert not channel.is_congested
