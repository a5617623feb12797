"""The server's side of the socket: an `EngineClient` whose engine runs in another process."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from specserve.engine.admission import check_request
from specserve.engine.mailbox import Mailbox
from specserve.errors import EngineDeadError, ShuttingDownError, SpecserveError
from specserve.protocols import AnswerCheck, ResolvedModel
from specserve_server.engine_answers import EngineState, ModelLookup
from specserve_server.engine_process import frames
from specserve_server.engine_process.sent_errors import EngineProcessError, received
from specserve_server.engine_process.sent_state import SentState, received_state

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from specserve.types import GenerateRequest, RequestOutput
    from specserve_checks.json_types import JsonObject
    from specserve_server.engine_client import ServerTokenizer, Status
    from specserve_server.engine_process.channel import Channel
    from specserve_server.engine_process.launch import LaunchedProcess
    from specserve_server.templates.model_template import ModelTemplate

T = TypeVar("T")


class EngineFailureError(EngineProcessError):
    """What ended the engine: its `repr` there."""

    def __repr__(self) -> str:
        return str(self)


class RemoteEngine:
    """Implements `specserve_server.engine_client.EngineClient`. Belongs to the event loop of the server, but for the
    methods that answer in other threads."""

    def __init__(
        self,
        channel: Channel[frames.FromEngine],
        process: LaunchedProcess,
        loaded: frames.Loaded,
        tokenizer: ServerTokenizer,
        template: ModelTemplate,
    ) -> None:
        self.channel, self.process = channel, process
        self.tokenizer, self.template = tokenizer, template
        self.model_name, self.created, self.limits = loaded.model_name, loaded.created, loaded.limits
        self.status: Status = "ready"
        self.loop, self.thread = asyncio.get_running_loop(), threading.get_ident()
        self.death: asyncio.Future[BaseException] = self.loop.create_future()
        self.mailboxes: dict[int, Mailbox] = {}
        """By stream."""
        self.calls: dict[int, asyncio.Future[bytes]] = {}
        self.count = 0
        """Of streams and calls so far."""
        self.watch = self.loop.create_task(self.watch_process())

    @property
    def max_model_len(self) -> int:
        return self.limits.max_model_len

    @property
    def output_kinds(self) -> frozenset[str]:
        return self.limits.output_kinds

    @property
    def num_requests(self) -> int:
        return len(self.mailboxes)

    # --- what arrives -------------------------------------------------------------------------------

    def receive(self, frame: frames.FromEngine) -> None:
        match frame:
            case frames.Outputs(outputs):
                for stream, output in outputs:
                    self.put(stream, output)
            case frames.Refused(stream, error):
                self.put(stream, told(received(error)))
            case frames.Answered(call, value):
                self.settle(call, lambda future: future.set_result(bytes(value)))
            case frames.Raised(call, error):
                raised = received(error)
                self.settle(call, lambda future: future.set_exception(raised))
            case frames.Died(error):
                self.die(EngineFailureError(error))
            case _:
                raise AssertionError(f"a running engine sent a {type(frame).__name__}")

    def put(self, stream: int, content: RequestOutput | SpecserveError) -> None:
        """A stream that was closed may have outputs on their way."""
        mailbox = self.mailboxes.get(stream)
        if mailbox is not None:
            mailbox.put(content)

    def settle(self, call: int, set_result: Callable[[asyncio.Future[bytes]], None]) -> None:
        future = self.calls.pop(call)
        if not future.done():  # its caller may have left
            set_result(future)

    async def watch_process(self) -> None:
        await asyncio.shield(self.channel.lost)
        how = await self.process.wait()
        error = EngineDeadError(f"the engine died: {how}")
        if self.status == "draining":
            error = ShuttingDownError("the server is shutting down before this request was done; try again")
            self.fail_streams(error)
        else:
            self.die(EngineFailureError(how))
        for call in list(self.calls):
            self.settle(call, lambda future: future.set_exception(error))

    def die(self, error: EngineFailureError) -> None:
        """Nothing is generated any more. Calls are answered while the process lives. What is told first is why."""
        if self.status == "dead":
            return
        self.status = "dead"
        self.fail_streams(EngineDeadError(f"the engine died: {error}"))
        self.death.set_result(error)

    def fail_streams(self, error: EngineDeadError) -> None:
        for mailbox in self.mailboxes.values():
            mailbox.put(error)

    # --- requests -----------------------------------------------------------------------------------

    async def submit(self, request: GenerateRequest) -> AsyncGenerator[RequestOutput, None]:
        """The request's outputs up to the one with a finish_reason. Closing the generator aborts the request."""
        self.check_alive()
        self.count = stream = self.count + 1
        mailbox = self.mailboxes[stream] = Mailbox()
        finished = False
        try:
            self.channel.send(frames.Submit(stream, request))
            while not finished:
                output = await mailbox.take()
                finished = output.finish_reason is not None
                yield output
        finally:
            del self.mailboxes[stream]
            if not finished:
                self.channel.send(frames.Abort(stream))

    def check_alive(self) -> None:
        if self.status == "dead":
            raise EngineDeadError("the engine has stopped; restart the server")
        self.check_connected()

    def check_connected(self) -> None:
        if self.channel.lost.done():
            raise EngineDeadError("the engine has stopped; restart the server")

    def after_aborts(self, action: Callable[[], object]) -> None:
        """At once: what it sends arrives behind the aborts."""
        action()

    def release(self, pin: int) -> None:
        """In any thread. In the event loop's it is sent at once, before the answer to who asked for the model: that
        client may ask another server process to unload it next."""
        frame = frames.Release(pin)
        if threading.get_ident() == self.thread:
            self.channel.send(frame)
        else:
            self.loop.call_soon_threadsafe(self.channel.send, frame)

    async def sync(self) -> None:
        """Wait until the engine's process has done what was sent before: streams are aborted, models released."""
        await self.call(frames.Sync)

    # --- calls --------------------------------------------------------------------------------------

    async def call(self, make_frame: Callable[[int], frames.Call]) -> bytes:
        """The answer, in msgpack. Raises what the call raised in the engine's process."""
        self.check_connected()
        self.count = number = self.count + 1
        future: asyncio.Future[bytes] = self.loop.create_future()
        self.calls[number] = future
        self.channel.send(make_frame(number))
        return await future

    def ask(self, make_frame: Callable[[int], frames.Call], kind: type[T]) -> T:
        """From another thread than the event loop's."""
        answer = asyncio.run_coroutine_threadsafe(self.call(make_frame), self.loop)
        return msgspec.msgpack.decode(answer.result(), type=kind)

    def check(self, request: GenerateRequest) -> None:
        """What the engine is too small for is not sent."""
        check_request(request, self.limits)
        self.ask(lambda call: frames.Check(call, request), type(None))

    def resolve_model(self, name: str) -> ModelLookup:
        found = self.ask(lambda call: frames.ResolveModel(call, name), frames.SentLookup)
        return ModelLookup(None if found.model is None else self.resolved(found.model), found.failed)

    def resolved(self, found: frames.FoundModel) -> ResolvedModel:
        release = None if found.pin is None else partial(self.release, found.pin)
        return ResolvedModel(found.name, found.parent, found.adapter, release)

    def list_models(self) -> list[ResolvedModel]:
        return [self.resolved(found) for found in self.ask(frames.ListModels, list[frames.FoundModel])]

    def check_answer(self, request: GenerateRequest, text: str, finish_reason: str) -> list[AnswerCheck]:
        return self.ask(lambda call: frames.CheckAnswer(call, request, text, finish_reason), list[AnswerCheck])

    def read_state(self) -> EngineState:
        return received_state(self.ask(frames.ReadState, SentState))

    def document(self, *, root_path: str, needs_key: bool) -> JsonObject:
        """/openapi.json."""
        return self.ask(lambda call: frames.Document(call, root_path, needs_key), dict)

    async def reset_prefix_cache(self) -> None:
        await self.call(frames.ResetPrefixCache)

    # --- the end ------------------------------------------------------------------------------------

    async def failed(self) -> BaseException:
        return await asyncio.shield(self.death)

    async def stop(self, drain_seconds: float = 0.0) -> None:
        """Let running requests finish for so long, then end the process. Requests that still run get an error."""
        if self.status == "ready":
            self.status = "draining"
        until = self.loop.time() + drain_seconds
        while self.mailboxes and not self.channel.lost.done() and self.loop.time() < until:
            await asyncio.sleep(0.01)
        self.channel.send(frames.Stop())
        await self.process.end()
        await asyncio.shield(self.watch)


def told(error: Exception) -> SpecserveError:
    """A mailbox holds errors that are told to clients."""
    return error if isinstance(error, SpecserveError) else EngineDeadError(str(error))
