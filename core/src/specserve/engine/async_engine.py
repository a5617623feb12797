"""The engine for asyncio: one thread runs `step`, the event loop hands its outputs to their readers.

Only msgspec Structs cross the border, in both directions: commands through an inbox, outputs through one
`call_soon_threadsafe` per step. A reader that is slow finds its outputs merged into one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from specserve.engine.admission import queue_full
from specserve.errors import EngineDeadError, QueueFullError, RequestError, ShuttingDownError
from specserve.faults import FAULTS, RequestFault
from specserve.types import RequestOutput

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from specserve.config import EngineConfig
    from specserve.engine.assembly import Assembled
    from specserve.metrics import EngineMetrics
    from specserve.plugins.host import InProcessPlugin, PluginHost
    from specserve.protocols import Metric
    from specserve.text.tokenizer import HfTokenizer
    from specserve.types import GenerateRequest

logger = logging.getLogger(__name__)


class Mailbox:
    """One slot for one reader: what arrives before it is read merges. Until it is `open`, outputs of that id are
    those of a closed request that had the same one."""

    __slots__ = ("arrived", "content", "open")

    def __init__(self) -> None:
        self.content: RequestOutput | EngineDeadError | None = None
        self.arrived = asyncio.Event()
        self.open = False

    def put(self, content: RequestOutput | EngineDeadError) -> None:
        if isinstance(self.content, RequestOutput):
            if self.content.finish_reason is not None:
                return  # complete: whatever ends the engine now does not concern this reader
            if isinstance(content, RequestOutput):
                content = self.content.merge(content)
        self.content = content
        self.arrived.set()

    async def take(self) -> RequestOutput:
        await self.arrived.wait()
        self.arrived.clear()
        content, self.content = self.content, None
        if isinstance(content, EngineDeadError):
            raise content
        assert content is not None
        return content


class AsyncEngine:
    """Made by `start`, inside a running event loop; every method but `check` belongs to that loop."""

    def __init__(self, assembled: Assembled, plugins: PluginHost) -> None:
        self.engine, self.config = assembled.engine, assembled.config
        self.tokenizer: HfTokenizer = assembled.tokenizer
        self.description, self.plugins = assembled.description, plugins
        self.created = int(time.time())
        self.status = "ready"
        self.loop = asyncio.get_running_loop()
        self.death: asyncio.Future[BaseException] = self.loop.create_future()
        self.mailboxes: dict[str, Mailbox] = {}
        self.inbox: deque[Callable[[], None]] = deque()
        self.aborting: set[str] = set()
        """Requests whose abort the step thread has yet to see."""
        self.opened: list[Mailbox] = []
        """Of requests that the step thread has taken since it last posted."""
        self.wake = threading.Event()
        self.stop_asked = threading.Event()
        self.thread = threading.Thread(target=self.run, name="specserve-step", daemon=True)
        self.thread.start()

    @classmethod
    async def start(
        cls,
        config: EngineConfig,
        *,
        extra: Mapping[str, InProcessPlugin] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> AsyncEngine:
        """Load the plugins and the model, off the loop. Raises ConfigError and its kind."""
        from specserve.engine.assembly import assemble  # torch: not at import time
        from specserve.plugins.host import PluginHost

        host = PluginHost.start(config, extra or {})
        return cls(await asyncio.to_thread(assemble, config, host, on_progress), host)

    # --- what the server reads ----------------------------------------------------------------------

    @property
    def model_name(self) -> str:
        return self.config.model

    @property
    def max_model_len(self) -> int:
        return self.engine.parts.limits.max_model_len

    @property
    def vocab_size(self) -> int:
        return self.engine.parts.limits.vocab_size

    @property
    def metrics(self) -> EngineMetrics:
        return self.engine.metrics

    @property
    def lossless(self) -> bool:
        return self.engine.verifier.lossless

    def describe(self) -> dict[str, Any]:
        return self.description

    def observer_metrics(self) -> list[Metric]:
        return self.engine.observer_metrics()

    # --- requests -----------------------------------------------------------------------------------

    def check(self, request: GenerateRequest) -> None:
        """Raise a `RequestError` unless the request can be served."""
        self.engine.check(request)

    async def submit(self, request: GenerateRequest) -> AsyncGenerator[RequestOutput, None]:
        """The request's outputs up to the one with a finish_reason. Closing the generator aborts the request
        and frees its blocks by the next step."""
        self.check(request)
        if self.status == "dead" or not self.thread.is_alive():
            raise EngineDeadError("the engine has stopped; restart the server")
        if len(self.mailboxes) >= self.config.max_num_seqs + self.config.max_waiting:
            raise QueueFullError(queue_full(self.config.max_waiting))
        if request.request_id in self.mailboxes:
            raise RequestError(f"a request with id {request.request_id!r} is running already.", param="request_id")
        mailbox = self.mailboxes[request.request_id] = Mailbox()
        finished = False
        try:
            self.send(lambda: self.add(request, mailbox))
            while not finished:
                output = await mailbox.take()
                finished = output.finish_reason is not None
                yield output
        finally:
            del self.mailboxes[request.request_id]
            if not finished:
                self.aborting.add(request.request_id)
                self.send(lambda: self.abort(request.request_id))

    def after_aborts(self, action: Callable[[], None]) -> None:
        """Run it at once where no abort is under way, else in the step thread, behind those that were asked before."""
        if self.aborting and self.thread.is_alive():
            self.send(partial(quietly, action))
        else:
            quietly(action)

    async def failed(self) -> BaseException:
        """Wait for the step loop to die; returns what killed it."""
        return await asyncio.shield(self.death)

    async def stop(self, drain_seconds: float = 0.0) -> None:
        """Let running requests finish for so long, then end the thread. Whoever still waits gets an error."""
        if self.status == "ready":
            self.status = "draining"
        until = self.loop.time() + drain_seconds
        while self.mailboxes and self.thread.is_alive() and self.loop.time() < until:
            await asyncio.sleep(0.01)
        self.send(self.finish)
        await asyncio.to_thread(self.thread.join)
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

    # --- the step thread ----------------------------------------------------------------------------

    def send(self, command: Callable[[], None]) -> None:
        """Have the step thread run this before its next step."""
        self.inbox.append(command)
        self.wake.set()

    def add(self, request: GenerateRequest, mailbox: Mailbox) -> None:
        self.opened.append(mailbox)
        try:
            self.engine.add(request)
        except RequestFault as fault:
            self.post([self.engine.rejected(fault)])
        except FAULTS as error:
            self.post([self.engine.rejected(RequestFault(request.request_id, "its start", error))])

    def abort(self, request_id: str) -> None:
        self.engine.abort(request_id)
        self.aborting.discard(request_id)

    def finish(self) -> None:
        self.stop_asked.set()

    def post(self, outputs: list[RequestOutput]) -> None:
        opened, self.opened = self.opened, []
        with contextlib.suppress(RuntimeError):  # the loop was closed under us: nobody is left to read
            self.loop.call_soon_threadsafe(self.deliver, opened, outputs)

    def run(self) -> None:
        try:
            self.step_until_stopped()
        except BaseException as error:
            logger.exception("the step loop died")
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.die, error)

    def step_until_stopped(self) -> None:
        engine = self.engine
        while not self.stop_asked.is_set():
            self.wake.clear()
            while self.inbox:
                self.inbox.popleft()()
            if engine.has_work:
                outputs = engine.step()
                if outputs:
                    self.post(outputs)
                if engine.scheduler.is_idle:
                    engine.check_integrity()
            else:
                self.rest()

    def rest(self) -> None:
        """Wait for a command, unless the one that ends the thread has just come."""
        if not self.stop_asked.is_set():
            self.wake.wait()

    def die(self, error: BaseException) -> None:
        self.status = "dead"
        dead = EngineDeadError(f"the engine died: {type(error).__name__}: {error}")
        dead.__cause__ = error
        self.fail_everyone(dead)
        if not self.death.done():
            self.death.set_result(error)


def quietly(action: Callable[[], None]) -> None:
    """What ends with a request, such as the pin of its adapter, ends nothing else by raising."""
    try:
        action()
    except FAULTS:
        logger.exception("what was to happen after a request's end failed")
