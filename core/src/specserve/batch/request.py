"""The live state of one sequence: the only mutable type that the stages of a step share.

A request is a list of tokens and one number, `computed`: how many of them have their keys and values in the cache.
What is prompt, what is generated and what is still to compute are differences of those.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from specserve.namespaces import namespace_of
from specserve.types import DrafterStats, SpeculationStats

if TYPE_CHECKING:
    from specserve.batch.processor_state import ProcessorState
    from specserve.faults import PluginPart
    from specserve.types import (
        Draft,
        FinishReason,
        GenerateRequest,
        PlannerStats,
        SamplingParams,
        SpeculationParams,
    )


class StopMatcher(Protocol):
    """Finds a request's stop strings in its text."""

    def push(self, token: int, /) -> str | None:
        """Read one token; the stop string that it completes, if any."""
        ...


@dataclass(slots=True, eq=False)
class Request:
    """`blocks` holds the ids of its KV blocks in order; `specserve.kv.slots` says where token i lies in them.

    Plugins are handed the engine's own requests, to read: an assignment to an attribute, and a change of a list, raises
    an AttributeError (`specserve.batch.admitted`)."""

    id: str
    tokens: list[int]
    prompt_len: int
    params: SamplingParams
    speculation: SpeculationParams
    namespace: str
    """Its adapter and cache salt as one key: requests of one namespace may share what is cached or learned."""
    adapter: str
    """The version of an adapter that it is served with; empty for the base model."""
    priority: int
    seed: int
    arrival: float
    """Seconds of time.monotonic."""
    order: int
    """The engine's own arrival count; ties of priority break by it."""
    max_len: int
    """Tokens at which it ends: prompt plus max_tokens, within the context."""
    computed: int = 0
    draft: Draft | None = None
    blocks: list[int] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    """Chain hash of each full block that was looked up or published."""
    num_published: int = 0
    """Leading blocks that the prefix cache knows."""
    cached_tokens: int = 0
    finish_reason: FinishReason | None = None
    stop_string: str | None = None
    preempted_at: list[float] = field(default_factory=list)
    """When its blocks were taken; it was computed again each time."""
    num_prompt_scored: int = 0
    """Prompt tokens whose log-probability was delivered."""
    first_scheduled: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    """When the newest token came; None before the first."""
    num_prompt_steps: int = 0
    """Steps that it was computed in up to its first token."""
    error_type: str | None = None
    """The name of the exception that it ended with."""
    trace_headers: dict[str, str] = field(default_factory=dict)
    """As `GenerateRequest.trace_headers`."""
    processors: list[ProcessorState] = field(default_factory=list)
    """In order of application; empty for most requests."""
    processor_parts: list[PluginPart] = field(default_factory=list)
    """The plugin part that each of `processors` came from."""
    stop_matcher: StopMatcher | None = None
    """None for a request without stop strings."""
    num_spec_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    acceptance_histogram: list[int] = field(default_factory=list)
    by_drafter: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Draft tokens that were verified, and those that were accepted, by the drafter's name."""

    @classmethod
    def admit(cls, wire: GenerateRequest, *, seed: int, arrival: float, order: int, max_len: int) -> Request:
        """A request as it begins: nothing is computed."""
        return cls(
            id=wire.request_id,
            tokens=list(wire.prompt_token_ids),
            prompt_len=len(wire.prompt_token_ids),
            params=wire.params,
            speculation=effective(wire.speculation),
            namespace=namespace_of(wire.adapter, wire.cache_salt),
            adapter=wire.adapter,
            priority=wire.priority,
            seed=seed,
            arrival=arrival,
            order=order,
            max_len=max_len,
            trace_headers=wire.trace_headers,
        )

    @property
    def num_generated(self) -> int:
        return len(self.tokens) - self.prompt_len

    @property
    def num_preemptions(self) -> int:
        return len(self.preempted_at)

    @property
    def max_depth(self) -> int:
        """Draft tokens that a path may have so that the token behind them still belongs to the request."""
        return self.max_len - len(self.tokens) - 1

    @property
    def rank(self) -> tuple[int, int]:
        """Scheduling order: lower first."""
        return self.priority, self.order

    def stats(self, planner: PlannerStats | None = None) -> SpeculationStats:
        """What speculation has done for it so far."""
        return SpeculationStats(
            self.num_spec_steps,
            self.num_draft_tokens,
            self.num_accepted_draft_tokens,
            tuple(self.acceptance_histogram),
            planner,
            {name: DrafterStats(*counts) for name, counts in self.by_drafter.items()},
        )


def effective(speculation: SpeculationParams) -> SpeculationParams:
    """Without any drafter, speculation is off."""
    return msgspec.structs.replace(speculation, enabled=False) if speculation.drafters == () else speculation
