"""The engine's side of the socket: what the server asks is done, and outputs are sent as they come."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from specserve.engine.mailbox import Mailbox
from specserve.faults import FAULTS
from specserve.types import RequestOutput
from specserve_server.engine_process import frames
from specserve_server.engine_process.sent_errors import encodable, sent
from specserve_server.engine_process.sent_state import sent_state

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from specserve.errors import SpecserveError
    from specserve.types import GenerateRequest
    from specserve_server.engine_client import HostedEngine
    from specserve_server.engine_process.channel import Channel
    from specserve_server.engines.attached import AttachedEngine

THREADS = ThreadPoolExecutor(max_workers=32, thread_name_prefix="specserve-calls")
"""Most calls take no time, and are not to wait for those that do."""


class Outbox(Mailbox):
    """Where the outputs of a stream wait until they are sent: those of one step together, and merged where the server
    reads too slowly."""

    __slots__ = ("request_id", "send_soon", "stream")

    def __init__(self, stream: int, request_id: str, send_soon: Callable[[Outbox], None]) -> None:
        super().__init__()
        self.stream, self.request_id, self.send_soon = stream, request_id, send_soon

    def put(self, content: RequestOutput | SpecserveError) -> bool:
        if isinstance(content, RequestOutput) and content.error is not None:
            content = msgspec.structs.replace(content, error=encodable(content.error))
        is_due = super().put(content)
        if is_due:
            self.send_soon(self)
        return is_due


class EngineHost:
    """Belongs to the event loop of the engine. `stopped` is done when the server has asked for the end. `end`: what is
    done then."""

    def __init__(
        self,
        channel: Channel[frames.FromServer],
        engine: HostedEngine,
        attached: AttachedEngine,
        end: Callable[[], Awaitable[None]],
    ) -> None:
        self.channel, self.engine, self.end = channel, engine, end
        self.client, self.routes = attached.client, attached.routes
        self.loop = asyncio.get_running_loop()
        self.stopped: asyncio.Future[None] = self.loop.create_future()
        self.streams: dict[int, Outbox] = {}
        self.unsent: dict[int, Outbox] = {}
        self.pins: dict[int, Callable[[], object]] = {}
        self.pin_numbers = count(1)
        """Asked from several threads at once: `next` is one operation."""
        self.tasks: set[asyncio.Task[None]] = set()
        channel.on_relief = self.flush
        self.watch = self.loop.create_task(self.tell_death())

    def receive(self, frame: frames.FromServer) -> None:
        match frame:
            case frames.Submit(stream, request):
                self.submit(Outbox(stream, request.request_id, self.send_soon), request)
            case frames.Abort(stream):
                self.close(stream, finished=False)
            case frames.Release(pin):
                self.engine.after_aborts(self.pins.pop(pin))
            case frames.Call():
                self.start(self.answer(frame))
            case frames.Stop():
                self.start(self.stop())
            case _:
                raise AssertionError(f"the server sent a second {type(frame).__name__}")

    def start(self, work: Coroutine[None, None, None]) -> None:
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def stop(self) -> None:
        await self.end()
        self.flush()
        self.stopped.set_result(None)

    async def leave(self) -> None:
        """The server has ended: nothing that it asked for goes on. Running calls are awaited: they may pin models."""
        self.watch.cancel()
        for stream in list(self.streams):
            self.close(stream, finished=False)
        await asyncio.gather(self.watch, *self.tasks, return_exceptions=True)
        for release in self.pins.values():
            self.engine.after_aborts(release)
        self.pins.clear()

    # --- streams ------------------------------------------------------------------------------------

    def submit(self, outbox: Outbox, request: GenerateRequest) -> None:
        try:
            self.engine.open(request, outbox)
        except FAULTS as error:
            self.channel.send(frames.Refused(outbox.stream, sent(error)))
        else:
            self.streams[outbox.stream] = outbox

    def close(self, stream: int, *, finished: bool) -> None:
        """The server may abort a stream whose last output is on its way."""
        outbox = self.streams.pop(stream, None)
        if outbox is not None:
            self.unsent.pop(stream, None)
            self.engine.close(outbox.request_id, finished=finished)

    def send_soon(self, outbox: Outbox) -> None:
        """Once the outputs of this step are all put."""
        if not self.unsent:
            self.loop.call_soon(self.flush)
        self.unsent[outbox.stream] = outbox

    def flush(self) -> None:
        if self.channel.is_congested:
            return  # it calls again
        outputs, unsent, self.unsent = [], self.unsent, {}
        for stream, outbox in unsent.items():
            content, outbox.content = outbox.content, None
            if isinstance(content, RequestOutput):
                outputs.append((stream, content))
                if content.finish_reason is not None:
                    self.close(stream, finished=True)
            elif content is not None:
                self.channel.send(frames.Refused(stream, sent(content)))
                self.close(stream, finished=False)
        if outputs:
            self.channel.send(frames.Outputs(outputs))

    async def tell_death(self) -> None:
        self.channel.send(frames.Died(encodable(repr(await self.engine.failed()))))

    # --- calls --------------------------------------------------------------------------------------

    async def answer(self, call: frames.Call) -> None:
        try:
            value = msgspec.msgpack.encode(await self.value_of(call))
        except FAULTS as error:
            if isinstance(error, asyncio.CancelledError):
                raise
            self.channel.send(frames.Raised(call.call, sent(error)))
        else:
            self.channel.send(frames.Answered(call.call, msgspec.Raw(value)))

    async def value_of(self, call: frames.Call) -> object:
        match call:
            case frames.ResetPrefixCache():
                await self.engine.reset_prefix_cache()
            case frames.Sync():
                pass
            case _:
                return await self.loop.run_in_executor(THREADS, self.value_in_thread, call)
        return None

    def value_in_thread(self, call: frames.Call) -> object:
        client = self.client
        match call:
            case frames.Check(_, request):
                client.check(request)
                return None
            case frames.ResolveModel(_, name):
                return self.resolve_model(name)
            case frames.ListModels():
                return [frames.FoundModel(each.name, each.parent, each.adapter, None) for each in client.list_models()]
            case frames.CheckAnswer(_, request, text, reason):
                return client.check_answer(request, text, reason)
            case frames.ReadState():
                return sent_state(client.read_state())
            case frames.Document(_, root_path, needs_key):
                return self.routes.document(root_path=root_path, needs_key=needs_key)
            case _:
                raise AssertionError(f"{type(call).__name__} is no call")

    def resolve_model(self, name: str) -> frames.SentLookup:
        model, failed = self.client.resolve_model(name)
        if model is None:
            return frames.SentLookup(None, tuple(failed))
        pin = None
        if model.release is not None:
            pin = next(self.pin_numbers)
            self.pins[pin] = model.release
        return frames.SentLookup(frames.FoundModel(model.name, model.parent, model.adapter, pin), tuple(failed))
