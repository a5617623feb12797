"""A server as a queue: continuous batching with given step costs, and a prefix cache that evicts the oldest blocks.

Time is simulated. A step of n decoding requests and p prompt tokens takes `base + n * per_request + p *
per_prompt_token` seconds; while no prompt is computed, steps are taken together up to the next event.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK_TOKENS = 16
TOKEN_BUDGET, MAX_RUNNING = 512, 64
"""As the engine's defaults."""


class StepCosts(NamedTuple):
    """Seconds."""

    base: float
    per_request: float
    per_prompt_token: float

    def step(self, num_decoding: int, num_prompt_tokens: int) -> float:
        return self.base + num_decoding * self.per_request + num_prompt_tokens * self.per_prompt_token


@dataclass(slots=True, eq=False)
class Request:
    """`chain`: the hashes of its prompt's blocks. `arrival`: when the router got it."""

    chain: tuple[bytes, ...]
    num_answer: int
    arrival: float
    session: int
    prompt_left: int = 0
    answer_left: int = 0
    cached_blocks: int = 0
    first_token: float = 0.0
    end: float = 0.0


@dataclass(slots=True, eq=False)
class Replica:
    costs: StepCosts
    capacity: int
    """Blocks of its cache."""
    blocks: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    waiting: deque[Request] = field(default_factory=deque)
    running: list[Request] = field(default_factory=list)
    began: float = 0.0
    """When the steps under way began."""
    step_seconds: float = 0.0
    num_steps: int = 0
    """Under way; 0 where it is idle."""
    chunk: int = 0
    """Prompt tokens of the step under way."""

    @property
    def num_requests(self) -> int:
        return len(self.running) + len(self.waiting)

    @property
    def next_event(self) -> float:
        """When the steps under way are done; infinity where there are none."""
        return self.began + self.num_steps * self.step_seconds if self.num_steps else math.inf

    def arrive(self, request: Request, now: float) -> None:
        """Steps under way end early: the one that runs now is the last."""
        self.waiting.append(request)
        if not self.num_steps:
            self.start(now)
        elif not self.chunk:
            done = math.ceil((now - self.began) / self.step_seconds)
            self.num_steps = min(self.num_steps, max(1, done))

    def finish_steps(self) -> list[Request]:
        """The steps under way are done; the next ones begin. Returns the requests that ended."""
        now, steps = self.next_event, self.num_steps
        budget, ended, still = self.chunk, list[Request](), list[Request]()
        for request in self.running:
            if request.prompt_left:
                taken = min(budget, request.prompt_left)
                request.prompt_left -= taken
                budget -= taken
                if not request.prompt_left:
                    self.decode(request, 1, now)
            else:
                self.decode(request, steps, now)
            (still if request.answer_left or request.prompt_left else ended).append(request)
        self.running = still
        for request in ended:
            request.end = now
            self.touch(request.chain)
        self.start(now)
        return ended

    def decode(self, request: Request, count: int, now: float) -> None:
        if request.answer_left == request.num_answer:
            request.first_token = now
        request.answer_left -= count

    def start(self, now: float) -> None:
        while self.waiting and len(self.running) < MAX_RUNNING:
            self.admit(self.waiting.popleft())
        prompts = sum(request.prompt_left for request in self.running)
        decoding = sum(not request.prompt_left for request in self.running)
        self.began, self.chunk = now, min(prompts, max(0, TOKEN_BUDGET - decoding))
        self.step_seconds = self.costs.step(decoding, self.chunk)
        self.num_steps = 1 if self.chunk else min((request.answer_left for request in self.running), default=0)

    def admit(self, request: Request) -> None:
        request.cached_blocks = self.match(request.chain)
        request.prompt_left = max(1, (len(request.chain) - request.cached_blocks) * BLOCK_TOKENS)
        request.answer_left = request.num_answer
        self.touch(request.chain)
        self.running.append(request)

    def match(self, chain: Sequence[bytes]) -> int:
        return next((i for i, block in enumerate(chain) if block not in self.blocks), len(chain))

    def touch(self, chain: Sequence[bytes]) -> None:
        """The last blocks of a chain are evicted before its first."""
        for block in reversed(chain):
            self.blocks[block] = None
            self.blocks.move_to_end(block)
        while len(self.blocks) > self.capacity:
            self.blocks.popitem(last=False)
