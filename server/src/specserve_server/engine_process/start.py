"""Starts an engine in a process of its own, and waits until it is loaded. In the server."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from specserve.errors import EngineDeadError
from specserve.text.tokenizer import HfTokenizer, read_tokenizer
from specserve.tracing import DRAFTS, HOOKS
from specserve_checks.struct_tables import build_struct_tables
from specserve_server.engine_process import frames
from specserve_server.engine_process.channel import Channel
from specserve_server.engine_process.client import RemoteEngine
from specserve_server.engine_process.launch import launch
from specserve_server.engine_process.private_directory import routes_socket
from specserve_server.engine_process.remote_routes import RemoteRoutes
from specserve_server.engine_process.sent_errors import received
from specserve_server.engines.attached import AttachedEngine
from specserve_server.generation.time_limit import time_limited
from specserve_server.templates.model_template import read_model_template

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.config import EngineConfig
    from specserve_server.config import ServerConfig
    from specserve_server.engine_client import ServerTokenizer
    from specserve_server.engine_process.launch import LaunchedProcess
    from specserve_server.load_progress import LoadProgress


class StartedEngine(NamedTuple):
    attached: AttachedEngine
    announcements: tuple[str, ...]
    """Lines that say what was chosen."""
    directory: Path
    """Of the engine's sockets."""


class Traced(NamedTuple):
    """What is traced in this process, for others."""

    topics: tuple[str, ...]
    form: str


class Startup:
    """Receives what is sent while the engine loads, and after that passes it on to `receive_running`."""

    def __init__(self, progress: LoadProgress) -> None:
        self.progress = progress
        self.loaded: asyncio.Future[frames.Loaded] = asyncio.get_running_loop().create_future()
        self.receive_running: Callable[[frames.FromEngine], None] | None = None

    async def wait(self, channel: Channel[frames.FromEngine]) -> frames.Loaded | None:
        """None: the engine's process has ended. Raises what stopped the loading."""
        ends: list[asyncio.Future[Any]] = [self.loaded, channel.lost]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        return self.loaded.result() if self.loaded.done() else None

    def receive(self, frame: frames.FromEngine) -> None:
        if self.receive_running is not None:
            self.receive_running(frame)
            return
        match frame:
            case frames.Progress(stage, done, total):
                self.progress(stage, done, total)
            case frames.Loaded():
                self.loaded.set_result(frame)
            case frames.LoadFailed(error):
                self.loaded.set_exception(received(error))
            case _:
                raise AssertionError(f"a loading engine sent a {type(frame).__name__}")


async def start_engine_process(config: EngineConfig, server: ServerConfig, progress: LoadProgress) -> StartedEngine:
    """Raises ConfigError and its kind, as loading does, and EngineDeadError where the process ends before."""
    build_struct_tables()  # of what is sent, before threads decode it
    process, end = await launch("specserve_server.engine_process")
    try:
        startup = Startup(progress)
        channel: Channel[frames.FromEngine] = await Channel.connect(end, frames.FromEngine, startup.receive)
        channel.send(frames.Start(config, without_keys(server), tuple(sys.path), *traced()))
        loaded = await startup.wait(channel)
        if loaded is None:
            raise EngineDeadError(f"the engine could not be loaded: {await process.wait()}.")
        tokenizer = await asyncio.to_thread(make_tokenizer, loaded.tokenizer)
        attached = await attach_remote(channel, process, startup, tokenizer, server)
        return StartedEngine(attached, loaded.announcements, Path(loaded.directory))
    except BaseException:
        process.kill()
        raise


def traced() -> Traced:
    found = [trace for trace in (HOOKS, DRAFTS) if trace.is_on]
    return Traced(tuple(trace.topic for trace in found), found[0].form if found else "text")


async def attach_remote(
    channel: Channel[frames.FromEngine],
    process: LaunchedProcess,
    startup: Startup,
    tokenizer: ServerTokenizer,
    server: ServerConfig,
) -> AttachedEngine:
    loaded = startup.loaded.result()
    template = await asyncio.to_thread(read_model_template, tokenizer.path, server.chat_template)
    engine = RemoteEngine(channel, process, loaded, tokenizer, template)
    startup.receive_running = engine.receive
    routes = RemoteRoutes(engine, routes_socket(Path(loaded.directory)), loaded.route_patterns)
    return AttachedEngine(time_limited(engine, server.request_timeout), routes)


def without_keys(server: ServerConfig) -> ServerConfig:
    """What is checked before a request gets there."""
    return msgspec.structs.replace(server, api_key=None, api_key_file=None, root_path="")


def make_tokenizer(sent: frames.SentTokenizer) -> HfTokenizer:
    path = Path(sent.path)
    return HfTokenizer(
        read_tokenizer(path / "tokenizer.json"),
        path=path,
        eos_token_ids=sent.eos_token_ids,
        sampling_defaults=sent.sampling_defaults,
        tokenizer_class=sent.tokenizer_class,
    )
