"""The thread that steps the engine, and the commands that it runs between steps.

Nothing else changes the engine while it runs. Outputs go to the event loop by one `call_soon_threadsafe` per step.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

from specserve.errors import SpecserveError
from specserve.faults import FAULTS, RequestFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.engine.engine import Engine
    from specserve.engine.mailbox import Mailbox
    from specserve.types import GenerateRequest, RequestOutput

logger = logging.getLogger(__name__)


class StepThread:
    """Made in a running event loop, where `deliver(opened mailboxes, outputs)` and `die(error)` are called."""

    def __init__(
        self,
        engine: Engine,
        deliver: Callable[[list[Mailbox], list[RequestOutput]], None],
        die: Callable[[BaseException], None],
    ) -> None:
        self.engine, self.deliver, self.die = engine, deliver, die
        self.loop = asyncio.get_running_loop()
        self.inbox: deque[Callable[[], None]] = deque()
        self.opened: list[Mailbox] = []
        """Outputs of requests that were added since the last post."""
        self.wake = threading.Event()
        self.stop_requested = threading.Event()
        engine.runner.watch(lambda: self.send(engine.runner.check_device))
        self.thread = threading.Thread(target=self.run, name="specserve-step", daemon=True)
        self.thread.start()

    # --- called from the event loop -----------------------------------------------------------------

    def is_alive(self) -> bool:
        return self.thread.is_alive()

    def send(self, command: Callable[[], None]) -> None:
        """Have the thread run this before its next step."""
        self.inbox.append(command)
        self.wake.set()

    def call(self, action: Callable[[], object], done: Callable[[], object]) -> None:
        """Have the thread run the action before its next step; `done` is called in the event loop afterwards."""
        self.send(lambda: self.run_action(action, done))

    def add(self, request: GenerateRequest, mailbox: Mailbox) -> None:
        self.send(lambda: self.add_to_engine(request, mailbox))

    def request_stop(self) -> None:
        """End the thread behind the commands that were sent before."""
        self.send(self.stop_requested.set)

    def join(self) -> None:
        """Block until the thread has ended."""
        self.thread.join()

    # --- the thread ---------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            self.step_until_stopped()
        except BaseException as error:
            if not isinstance(error, SpecserveError):  # its message says all, and whoever waits for the end tells it
                logger.exception("the step loop died")
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.die, error)

    def step_until_stopped(self) -> None:
        engine = self.engine
        while not self.stop_requested.is_set():
            self.wake.clear()
            while self.inbox:
                self.inbox.popleft()()
            if engine.has_work:
                outputs = engine.step()
                if outputs:
                    self.post(outputs)
                if engine.scheduler.is_idle:
                    engine.check_integrity()
            elif not self.stop_requested.is_set():  # the last command may have set it
                self.wake.wait()

    def add_to_engine(self, request: GenerateRequest, mailbox: Mailbox) -> None:
        self.opened.append(mailbox)
        try:
            self.engine.add(request)
        except RequestFault as fault:
            self.post([self.engine.rejected(fault)])
        except FAULTS as error:
            self.post([self.engine.rejected(RequestFault(request.request_id, "its start", error))])

    def run_action(self, action: Callable[[], object], done: Callable[[], object]) -> None:
        action()
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
            self.loop.call_soon_threadsafe(done)

    def post(self, outputs: list[RequestOutput]) -> None:
        opened, self.opened = self.opened, []
        with contextlib.suppress(RuntimeError):  # the loop was closed: no reader is left
            self.loop.call_soon_threadsafe(self.deliver, opened, outputs)
