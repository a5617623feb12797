"""Which draft tokens pay: estimates of survival, the choice, and for whom drafters draft."""

from collections.abc import Sequence
from typing import Literal, TypedDict

from specserve.api import Draft, SpanVerdict
from specserve.api.batch import Request, Span

MOST_SLOWDOWN: float
"""A step with draft tokens takes at most this many times as long as a plain one."""

class RequestNumbers(TypedDict):
    """Of one request. `steps`: by reason."""

    steps: dict[str, int]
    predicted: float
    accepted: int
    verified: int

class Numbers(RequestNumbers):
    """Of all requests. `widths[n]`: how often a request verified n draft tokens."""

    widths: list[int]
    calibration_error: float

class Planner:
    """Seconds throughout."""

    def __init__(self, objective: Literal["fair", "throughput", "latency"], min_gain: float) -> None: ...
    def limits(
        self, requests: Sequence[Request], most: int, accepted: float, verified: float, plain_step: float
    ) -> list[int]:
        """The most draft tokens of each request; 0 for those that are not drafted for. Call once per step. `accepted`:
        what an accepted draft token saves; `verified`: what a verified one takes."""

    def measure(self, requests: Sequence[Request], most: int) -> list[int]:
        """In place of `limits`: 0 for all, so that the next step shows what a plain one takes."""

    def usual_gain(self) -> float:
        """What a request's draft tokens gain in a step with drafts, in logarithms of its speed, without what drafting
        takes: a moving average."""

    def idle_steps(self) -> int:
        """After `limits` gave 0 for all: for this many steps it need not be called, while the same requests run."""

    def skip(self, steps: int) -> None:
        """`steps` steps ran without it."""

    def choose(
        self, requests: Sequence[Request], seconds: Sequence[float] | memoryview, budget: int
    ) -> list[int | list[int] | None]:
        """Of each request's draft the nodes to verify, or how many of its first; None for none. seconds[n]: a buffer of
        what a step with n draft tokens takes, never falling."""

    def learn(self, spans: Sequence[Span], decided: list[SpanVerdict]) -> None:
        """What became of a step."""

    def observe_drafting(self, seconds: float, num_drafting: int, pass_seconds: float) -> None:
        """Drafting for `num_drafting` requests took `seconds`; each of a draft's passes after the first took
        `pass_seconds`, 0 if that is not known."""

    def drafting_cost(self, num_drafting: int, depth: float) -> float:
        """Seconds to draft for `num_drafting` requests to `depth` levels, without what drafters have to read first."""

    def level_seconds(self, num_drafting: int) -> float:
        """Seconds of each level after the first for `num_drafting` requests, as far as drafters state it."""

    def stats(self) -> Numbers: ...
    def request_stats(self, request_id: str) -> RequestNumbers | None: ...
    def forget(self, request_id: str) -> None: ...
    def survival(self, draft: Draft, request: Request) -> list[float]:
        """P(node and its ancestors are accepted), for every node."""

    def observe(self, draft: Draft, request: Request, tokens: Sequence[int]) -> None:
        """`tokens`: what the target gave after the draft's root."""
