"""An engine with a given output, which records the requests that were submitted and aborted."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specserve.engine.admission import NO_LIMITS, EngineLimits
from specserve.errors import RequestError
from specserve.metrics import AdapterUse, CacheInfo, EngineMetrics
from specserve.plugins.host import HookResults
from specserve.text.stop_strings import StopStringMatcher
from specserve.types import Draft, RequestOutput, SpeculationStats, SpeculationStep, TokenLogprobs

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

    from specserve.engine.mailbox import Mailbox
    from specserve.protocols import Metric
    from specserve.text.tokenizer import HfTokenizer
    from specserve.types import GenerateRequest

MAX_MODEL_LEN = 256
CACHE = CacheInfo(16, 100, "float32", True)


@dataclass
class FakePlugins:
    """`answers` by hook name: the result, or a function of the hook's arguments that returns it."""

    answers: dict[str, Any] = field(default_factory=dict)

    def describe(self) -> list[dict[str, Any]]:
        return [{"name": "fake", "enabled": True}]

    def collect(self, hook: str, **arguments: Any) -> list[tuple[str, Any]]:
        answer = self.answers.get(hook)
        if answer is None:
            return []
        return [("fake", answer(**arguments) if callable(answer) else answer)]

    def try_collect(self, hook: str, parse: Callable[[Any], Any], **arguments: Any) -> HookResults[Any]:
        answers = [answer for answer in self.collect(hook, **arguments) if answer[1] is not None]
        return HookResults([(name, parse(answer)) for name, answer in answers], [])

    def guard(self, plugin: str, name: str, action: Callable[[], object]) -> Callable[[], None]:
        return lambda: (action(), None)[1]


@dataclass
class FakeEngine:
    """Generates the tokens of `text`, `width` per step; all but the last of a step are accepted draft tokens."""

    tokenizer: HfTokenizer
    text: str = "hello wörld 🙂!"
    answer_ids: tuple[int, ...] | None = None
    """In place of the text's tokens."""
    width: int = 2
    delay: float = 0.0
    error_after: int | None = None
    endless: bool = False
    reason: str = "length"
    """Why a text ends that no stop string ended. With "stop" its last token is not shown."""
    model_name: str = "fake-model"
    max_model_len: int = MAX_MODEL_LEN
    output_kinds: frozenset[str] = frozenset()
    cache_info: CacheInfo = CACHE
    adapters: AdapterUse | None = None
    num_resets: int = 0
    created: int = 1700000000
    status: str = "ready"
    metrics: EngineMetrics = field(default_factory=EngineMetrics)
    plugins: FakePlugins = field(default_factory=FakePlugins)
    observed: list[Metric] = field(default_factory=list)
    submitted: list[GenerateRequest] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    aborted: list[str] = field(default_factory=list)
    stopped: list[float] = field(default_factory=list)
    pumps: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    death: asyncio.Event = field(default_factory=asyncio.Event)

    def check(self, request: GenerateRequest) -> None:
        if len(request.prompt_token_ids) >= self.max_model_len:
            text = f"prompt: This model's maximum context length is {self.max_model_len} tokens."
            raise RequestError(text, param="prompt", code="context_length_exceeded")

    def describe(self) -> dict[str, Any]:
        return {"model": self.model_name, "verifier": "drafter-invariant", "lossless": True}

    @property
    def num_requests(self) -> int:
        return len(self.running)

    def adapter_use(self) -> AdapterUse | None:
        return self.adapters

    async def reset_prefix_cache(self) -> None:
        self.num_resets += 1

    def observer_metrics(self) -> Iterable[Metric]:
        return self.observed

    async def stop(self, drain_seconds: float = 0.0) -> None:
        self.stopped.append(drain_seconds)
        self.status = "draining"
        deadline = asyncio.get_running_loop().time() + drain_seconds
        while self.running and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.005)

    def after_aborts(self, action: Callable[[], None]) -> None:
        action()

    def listen(self, ended: Callable[[Any], object]) -> None:
        """It has no requests of the engine's to tell of."""

    async def failed(self) -> BaseException:
        await self.death.wait()
        self.status = "dead"
        return RuntimeError("boom")

    @property
    def limits(self) -> EngineLimits:
        return NO_LIMITS._replace(
            max_model_len=self.max_model_len,
            output_kinds=self.output_kinds,
            serves_adapters=True,
            drafters=("ngram", "eagle"),
        )

    def open(self, request: GenerateRequest, mailbox: Mailbox) -> None:
        self.pumps[request.request_id] = asyncio.create_task(self.pump(request, mailbox))

    async def pump(self, request: GenerateRequest, mailbox: Mailbox) -> None:
        async with aclosing(self.submit(request)) as outputs:
            async for output in outputs:
                mailbox.put(output)

    def close(self, request_id: str, *, finished: bool) -> None:
        pump = self.pumps.pop(request_id)
        if not finished:
            pump.cancel()

    async def submit(self, request: GenerateRequest) -> AsyncGenerator[RequestOutput, None]:
        self.submitted.append(request)
        self.running.add(request.request_id)
        finished = False
        try:
            for output in self.outputs(request):
                await asyncio.sleep(self.delay)
                finished = output.finish_reason is not None
                yield output
            while self.endless:
                await asyncio.sleep(0.001)
                yield RequestOutput(request.request_id, (self.tokenizer.encode("a")[0],))
        finally:
            self.running.discard(request.request_id)
            if not finished:
                self.aborted.append(request.request_id)

    def outputs(self, request: GenerateRequest) -> Iterable[RequestOutput]:
        params = request.params
        answer = self.tokenizer.encode(self.text) if self.answer_ids is None else self.answer_ids
        tokens = answer[: params.max_tokens]
        matcher = StopStringMatcher(params.stop, self.tokenizer.stream(request.prompt_token_ids))
        steps = [tokens[i : i + self.width] for i in range(0, len(tokens), self.width)]
        if params.prompt_logprobs is not None:
            scored = logprobs(request.prompt_token_ids[1:], params.prompt_logprobs)
            yield RequestOutput(request.request_id, (), prompt_logprobs=scored)
        for i, step in enumerate(steps):
            stop = None
            for j, token_id in enumerate(step):
                stop = matcher.push(token_id)
                if stop is not None:
                    step = step[: j + 1]
                    break
            if self.error_after == i:
                yield RequestOutput(request.request_id, (), "error", error="the device is gone")
                return
            ends = stop is not None or (i + 1 == len(steps) and not self.endless)
            yield RequestOutput(
                request.request_id,
                tuple(step),
                ("stop" if stop is not None else self.reason) if ends else None,
                logprobs=None if params.logprobs is None else logprobs(step, params.logprobs),
                accepted=(True,) * (len(step) - 1) + (False,),
                drafted_by=("fake",) * (len(step) - 1) + ("",),
                stop_string=stop,
                cached_tokens=1,
                stats=SpeculationStats(i + 1, 3 * (i + 1), i + 1, (0, i + 1)) if ends else None,
                steps=(told(step),) if request.speculation.return_steps else (),
            )
            if stop is not None:
                return


def told(tokens: Sequence[int]) -> SpeculationStep:
    """Behind the accepted draft tokens, a chain, comes one that is rejected."""
    count = len(tokens) - 1
    draft = Draft(tokens=(*tokens[:-1], abs(tokens[-1] - 1)), survival=(0.123456,) * len(tokens), source="fake")
    return SpeculationStep(len(tokens), draft, tuple(range(count)), "rejected", None, 0.0123456)


def logprobs(tokens: Iterable[int], count: int = 1) -> tuple[TokenLogprobs, ...]:
    """The chosen token is the likeliest; its log-probability is -id/1000. From the third on they are -inf."""
    result = []
    for token in tokens:
        ids = tuple(abs(token - k) for k in range(count))
        values = tuple(-token / 1000 - k if k < 2 else float("-inf") for k in range(count))
        result.append(TokenLogprobs(token, -token / 1000, ids, values))
    return tuple(result)
