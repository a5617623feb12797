"""The engine for asyncio: a thread steps it, and its outputs reach the readers of their requests.

Only msgspec Structs are passed between thread and event loop. Outputs for a slow reader are merged.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Literal

from specserve.engine.description import adapter_use, cache_info, describe_graphs, describe_planner
from specserve.engine.mailbox import Mailbox
from specserve.engine.step_thread import StepThread
from specserve.errors import EngineDeadError, RequestError, ShuttingDownError
from specserve.faults import FAULTS
from specserve.kv.page_toucher import PageToucher
from specserve.load_progress import IMPORTING, not_shown
from specserve.loading_thread import run_in_loading_thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from specserve.batch.request import Request
    from specserve.config import EngineConfig
    from specserve.engine.admission import EngineLimits
    from specserve.engine.assembly import Assembled
    from specserve.load_progress import ProgressCallback
    from specserve.metrics import AdapterUse, CacheInfo, EngineMetrics
    from specserve.plugins.host import InProcessPlugin, PluginHost
    from specserve.protocols import Metric
    from specserve.text.tokenizer import HfTokenizer
    from specserve.types import GenerateRequest, RequestOutput
    from specserve_checks.json_types import JsonObject

logger = logging.getLogger(__name__)


class AsyncEngine:
    """Made by `start`, inside a running event loop; every method but `check` belongs to that loop."""

    def __init__(self, assembled: Assembled, plugins: PluginHost) -> None:
        self.engine, self.config = assembled.engine, assembled.config
        self.tokenizer: HfTokenizer = assembled.tokenizer
        self.description, self.plugins = assembled.description, plugins
        self.created = int(time.time())
        self.status: Literal["ready", "draining", "dead"] = "ready"
        self.loop = asyncio.get_running_loop()
        self.death: asyncio.Future[BaseException] = self.loop.create_future()
        self.mailboxes: dict[str, Mailbox] = {}
        """By request id, of requests that have a reader."""
        self.aborting: set[str] = set()
        """Requests whose abort the step thread has yet to run."""
        self.commands: set[asyncio.Future[None]] = set()
        """Calls of `between_steps` that the step thread has yet to run."""
        self.thread = StepThread(self.engine, self.deliver, self.die)
        self.pages = PageToucher(self.engine.parts.cache.host_areas(), lambda: self.engine.has_work)
        self.pages.start()

    @classmethod
    async def start(
        cls,
        config: EngineConfig,
        *,
        extra: Mapping[str, InProcessPlugin] | None = None,
        on_progress: ProgressCallback = not_shown,
    ) -> AsyncEngine:
        """Load the plugins and the model, off the loop. Raises ConfigError and its kind."""
        return cls(*await run_in_loading_thread(partial(load, config, extra or {}, on_progress)))

    # --- what the server reads ----------------------------------------------------------------------

    @property
    def model_name(self) -> str:
        return self.config.model

    @property
    def max_model_len(self) -> int:
        return self.limits.max_model_len

    @property
    def limits(self) -> EngineLimits:
        return self.engine.parts.limits

    @property
    def output_kinds(self) -> frozenset[str]:
        return self.limits.output_kinds

    @property
    def metrics(self) -> EngineMetrics:
        return self.engine.metrics

    @property
    def cache_info(self) -> CacheInfo:
        return cache_info(self.config, self.engine.parts.cache)

    @property
    def num_requests(self) -> int:
        return len(self.mailboxes)

    def adapter_use(self) -> AdapterUse | None:
        return adapter_use(self.engine)

    @property
    def lossless(self) -> bool:
        return self.engine.verifier.lossless

    def describe(self) -> JsonObject:
        """What was chosen at start-up, and the graphs and the planner's decisions so far."""
        return {**self.description, "graphs": describe_graphs(self.engine), **describe_planner(self.engine)}

    def observer_metrics(self) -> list[Metric]:
        return self.engine.observer_metrics()

    # --- requests -----------------------------------------------------------------------------------

    def check(self, request: GenerateRequest) -> None:
        """Raise a `RequestError` unless the request can be served."""
        self.engine.check(request)

    async def submit(self, request: GenerateRequest) -> AsyncGenerator[RequestOutput, None]:
        """The request's outputs up to the one with a finish_reason. Closing the generator aborts the request
        and frees its blocks by the next step."""
        mailbox = Mailbox()
        self.open(request, mailbox)
        finished = False
        try:
            while not finished:
                output = await mailbox.take()
                finished = output.finish_reason is not None
                yield output
        finally:
            self.close(request.request_id, finished=finished)

    def open(self, request: GenerateRequest, mailbox: Mailbox) -> None:
        """Have the request's outputs put into the mailbox, until `close`, which must follow. Raises what `submit`
        raises before the first output."""
        self.check(request)
        self.check_alive()
        if len(self.mailboxes) >= self.config.max_num_seqs + self.config.max_waiting:
            raise self.engine.queue_full()
        if request.request_id in self.mailboxes:
            raise RequestError(f"a request with id {request.request_id!r} is running already.", param="request_id")
        mailbox.interval = self.config.stream_interval
        self.mailboxes[request.request_id] = mailbox
        self.thread.add(request, mailbox)

    def close(self, request_id: str, *, finished: bool) -> None:
        """`finished`: its last output was put; otherwise the request is aborted."""
        del self.mailboxes[request_id]
        if not finished:
            self.aborting.add(request_id)
            self.thread.send(partial(self.abort, request_id))

    def after_aborts(self, action: Callable[[], object]) -> None:
        """Run the action at once while no abort is pending, else in the step thread, behind the pending ones."""
        if self.aborting and self.thread.is_alive():
            self.thread.send(partial(run_logged, action))
        else:
            run_logged(action)

    async def reset_prefix_cache(self) -> None:
        """Forget every cached prefix that no running request uses. Raises EngineDeadError."""
        await self.between_steps(self.engine.reset_prefix_cache)

    async def between_steps(self, action: Callable[[], object]) -> None:
        """Run the action in the step thread, before its next step, and wait for it."""
        self.check_alive()
        done: asyncio.Future[None] = self.loop.create_future()
        self.commands.add(done)
        try:
            self.thread.call(action, partial(finish, done))
            await done
        finally:
            self.commands.discard(done)

    def check_alive(self) -> None:
        if self.status == "dead" or not self.thread.is_alive():
            raise EngineDeadError("the engine has stopped; restart the server")

    def listen(self, ended: Callable[[Request], object]) -> None:
        """Have it called with every request that ends, aborted ones too, in the step thread."""
        self.engine.listeners.append(lambda request: run_logged(partial(ended, request)))

    async def failed(self) -> BaseException:
        """Wait until the step loop has failed; returns the exception that ended it."""
        return await asyncio.shield(self.death)

    async def stop(self, drain_seconds: float = 0.0) -> None:
        """Let running requests finish for so long, then end the thread. Requests that still run get an error."""
        if self.status == "ready":
            self.status = "draining"
        until = self.loop.time() + drain_seconds
        while self.mailboxes and self.thread.is_alive() and self.loop.time() < until:
            await asyncio.sleep(0.01)
        self.thread.request_stop()
        await asyncio.to_thread(self.thread.join)
        await asyncio.to_thread(self.pages.stop)
        await asyncio.to_thread(self.engine.parts.cache_journal.stop)
        await asyncio.to_thread(self.engine.runner.close)
        self.fail_everyone(ShuttingDownError("the server is shutting down before this request was done; try again"))

    def deliver(self, opened: list[Mailbox], outputs: list[RequestOutput]) -> None:
        for mailbox in opened:
            mailbox.open = True
        for output in outputs:
            found = self.mailboxes.get(output.request_id)
            if found is not None and found.open:
                found.put(output)

    def fail_everyone(self, error: EngineDeadError) -> None:
        for mailbox in self.mailboxes.values():
            mailbox.put(error)
        for command in self.commands:
            if not command.done():
                command.set_exception(error)

    def abort(self, request_id: str) -> None:
        """Runs in the step thread."""
        self.engine.abort(request_id)
        self.aborting.discard(request_id)

    def die(self, error: BaseException) -> None:
        self.status = "dead"
        dead = EngineDeadError(f"the engine died: {type(error).__name__}: {error}")
        dead.__cause__ = error
        self.fail_everyone(dead)
        if not self.death.done():
            self.death.set_result(error)


def load(
    config: EngineConfig, extra: Mapping[str, InProcessPlugin], progress: ProgressCallback
) -> tuple[Assembled, PluginHost]:
    """Plugins first: their options are wrong more often than a model, and they are there sooner."""
    progress(IMPORTING, 0, 0)
    from specserve.plugins.host import PluginHost  # torch, as the next one: not at import time

    host = PluginHost.start(config, extra)
    from specserve.engine.assembly import assemble

    return assemble(config, host, progress), host


def finish(command: asyncio.Future[None]) -> None:
    if not command.done():  # its caller may have left
        command.set_result(None)


def run_logged(action: Callable[[], object]) -> None:
    """Run what belongs to a request's end, such as the release of its adapter; log what it raises."""
    try:
        action()
    except FAULTS:
        logger.exception("what was to happen at a request's end failed")
