"""Calls of the server while the engine serves, from many threads, and once it has died."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from fake_engine import FakeEngine

from both_forms import over_a_socket
from specserve.errors import EngineDeadError
from specserve.protocols import Metric, ResolvedModel
from specserve.text.tokenizer import HfTokenizer
from specserve.types import GenerateRequest
from specserve_server.config import ServerConfig
from specserve_server.engine_process import frames
from specserve_server.engine_process.sent_errors import EngineProcessError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REQUEST = GenerateRequest(request_id="a", prompt_token_ids=(1, 2))


@pytest.fixture
def engine(toy_model: Path) -> FakeEngine:
    return FakeEngine(HfTokenizer.from_dir(toy_model))


@pytest.fixture
def threads_that_take_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("threads_that_take_turns")
async def test_models_that_many_threads_look_up_at_once_are_each_released_once(engine: FakeEngine) -> None:
    released: list[str] = []

    def resolve(name: str) -> ResolvedModel:
        return ResolvedModel(name, None, f"{name}@1", lambda: released.append(name))

    engine.plugins.answers["resolve_model"] = resolve
    names = [f"m{i}" for i in range(400)]
    async with over_a_socket(engine, ServerConfig()) as (client, routes, _):
        with ThreadPoolExecutor(32) as pool:
            loop = asyncio.get_running_loop()
            found = await asyncio.gather(*(loop.run_in_executor(pool, client.resolve_model, name) for name in names))
        for lookup in found:
            assert lookup.model is not None
            assert lookup.model.release is not None
            lookup.model.release()
        async with asyncio.timeout(60):
            while len(released) < len(names):
                await asyncio.sleep(0.001)
        await routes.close()
    assert sorted(released) == sorted(names)


async def test_a_model_is_released_before_whatever_the_event_loop_does_next(engine: FakeEngine) -> None:
    """The client has its answer next, and may ask another process to unload the model."""
    released: list[str] = []
    engine.plugins.answers["resolve_model"] = lambda name: ResolvedModel(
        name, None, f"{name}@1", lambda: released.append(name)
    )
    async with over_a_socket(engine, ServerConfig()) as (client, routes, _):
        found = (await asyncio.to_thread(client.resolve_model, "m")).model
        assert found is not None
        assert found.release is not None
        with patch.object(client.channel, "send", wraps=client.channel.send) as send:
            found.release()
            assert [type(call.args[0]) for call in send.call_args_list] == [frames.Release]
        async with asyncio.timeout(60):
            while not released:
                await asyncio.sleep(0.001)
        await routes.close()


async def test_a_dead_engine_still_answers_calls_and_generates_nothing(engine: FakeEngine) -> None:
    asked, go = threading.Event(), threading.Event()

    def resolve(name: str) -> ResolvedModel:
        asked.set()
        assert go.wait(60)
        return ResolvedModel(name, None, "late@1")

    engine.plugins.answers["resolve_model"] = resolve
    async with over_a_socket(engine, ServerConfig()) as (client, routes, _):
        late = asyncio.create_task(asyncio.to_thread(client.resolve_model, "late"))
        await asyncio.to_thread(asked.wait, 60)
        engine.death.set()
        assert repr(await client.failed()) == "RuntimeError('boom')"
        go.set()
        found = await asyncio.wait_for(late, 60)
        assert found.model is not None
        assert found.model.adapter == "late@1"
        assert (await asyncio.to_thread(client.read_state)).cache_info == engine.cache_info
        with pytest.raises(EngineDeadError):
            await anext(client.submit(REQUEST))
        await routes.close()


async def test_an_answer_that_cannot_be_encoded_is_an_error_of_its_call(engine: FakeEngine) -> None:
    engine.observed = [Metric("a", "\ud800", "gauge", 1.0)]
    async with over_a_socket(engine, ServerConfig()) as (client, routes, _):
        with pytest.raises(EngineProcessError, match="raised UnicodeEncodeError"):
            await asyncio.wait_for(asyncio.to_thread(client.read_state), 60)
        engine.observed = []
        await asyncio.to_thread(client.read_state)
        await routes.close()
