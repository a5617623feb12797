"""Further server processes of one engine, over its socket: each ends for itself."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from fake_engine import FakeEngine

from specserve.errors import ShuttingDownError
from specserve.protocols import ResolvedModel
from specserve.text.tokenizer import HfTokenizer
from specserve.types import GenerateRequest
from specserve_server.config import ServerConfig
from specserve_server.engine_process.further_servers import further_servers
from specserve_server.engine_process.loaded import loaded_frame
from specserve_server.engine_process.private_directory import engine_socket, private_directory
from specserve_server.engines.in_process import attach_in_process
from specserve_server.http_process import frames
from specserve_server.http_process.__main__ import Process
from specserve_server.http_process.connection import connect
from specserve_server.http_process.service import serve_until_asked
from specserve_server.state.api_keys import ApiKeys
from specserve_server.state.rate_limits import RateLimits
from specserve_server.state.server_state import ServerState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from specserve_server.engine_client import EngineClient


@pytest.fixture
def engine(toy_model: Path) -> FakeEngine:
    return FakeEngine(HfTokenizer.from_dir(toy_model), endless=True, delay=0.001)


@asynccontextmanager
async def clients(engine: FakeEngine, count: int) -> AsyncIterator[list[EngineClient]]:
    """Of so many further processes, all of them this one."""
    attached = await attach_in_process(engine, ServerConfig())
    with private_directory() as directory:
        loaded = loaded_frame(engine, [], directory, ())
        async with further_servers(engine_socket(directory), engine, attached, loaded):
            deaths: list[asyncio.Future[str]] = [asyncio.get_running_loop().create_future() for _ in range(count)]
            found = [await connect(directory, ServerConfig(), death) for death in deaths]
            yield [one.client for one in found]
            for one in found:
                await one.routes.close()
                await one.client.stop()
    await attached.routes.close()


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.001)


async def test_who_stops_aborts_its_own_requests_and_the_engine_goes_on(engine: FakeEngine) -> None:
    async with clients(engine, 2) as (stopping, staying):
        streams = [
            client.submit(GenerateRequest(request_id=name, prompt_token_ids=(1,)))
            for client, name in ((stopping, "a"), (staying, "b"))
        ]
        for stream in streams:
            await anext(stream)
        assert (await asyncio.to_thread(staying.read_state)).num_requests == 2
        await stopping.stop()
        await until(lambda: engine.aborted == ["a"])
        await anext(streams[1])
        assert (await asyncio.to_thread(staying.read_state)).num_requests == 1
        assert engine.stopped == []
        for stream in streams:
            await stream.aclose()


async def test_a_model_that_was_being_looked_up_for_a_lost_process_is_released(engine: FakeEngine) -> None:
    asked, go = threading.Event(), threading.Event()
    released: list[str] = []

    def resolve(name: str) -> ResolvedModel:
        asked.set()
        assert go.wait(60)
        return ResolvedModel(name, None, f"{name}@1", lambda: released.append(name))

    engine.plugins.answers["resolve_model"] = resolve
    async with clients(engine, 1) as (lost,):
        lookup = asyncio.create_task(asyncio.to_thread(lost.resolve_model, "m"))
        await asyncio.to_thread(asked.wait, 60)
        await lost.stop()
        go.set()
        with pytest.raises(ShuttingDownError):
            await lookup
        await until(lambda: released == ["m"])


async def test_a_process_that_drains_waits_for_its_answers_until_it_is_asked_to_abort(engine: FakeEngine) -> None:
    process = Process()
    async with clients(engine, 1) as (client,):
        config = ServerConfig()
        state = ServerState(config, ApiKeys(config), RateLimits(None, None), engine=client)
        state.num_answering = 1
        serving = asyncio.create_task(serve_until_asked(state, process.asked))
        process.receive(frames.Drain(3600.0))
        await until(lambda: state.draining)
        await asyncio.sleep(0.05)
        assert not serving.done()
        process.receive(frames.Abort())
        assert await asyncio.wait_for(serving, 60) == 0
