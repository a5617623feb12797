"""Recurrent states as the scheduler sees them: with which state a request starts, which slots its spans read and write,
and which states are saved beside the blocks of the prefix cache.

A prefix hit goes to the last block behind which a state is saved; what lies between is computed again. States are saved
behind every `interval` tokens, behind the last whole block of a span of a prompt, and behind the newest one of an
answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from specserve.batch.span_states import SpanStates
from specserve.kv.states import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from specserve.batch.request import Request
    from specserve.batch.span import ScheduledSpan
    from specserve.kv.states import OwnSlots, StatePool


@dataclass(slots=True)
class RequestStates:
    """The state that its next span begins with."""

    own: OwnSlots
    source: int
    """One of its own slots, or a saved one, or that of no tokens."""
    position: int = 0
    """Tokens that the source stands for."""
    path: tuple[int, ...] = ()
    """Draft tokens of the source's step that were accepted behind it."""
    saving: list[tuple[int, int]] = field(default_factory=list)
    """Ascending (tokens, slot): what its span in flight saves."""
    newest_saved: bytes | None = None
    """The hash of the block whose state was saved last while it generated."""


class StateRoom(NamedTuple):
    """The memory for all states, in bytes, and the widest draft that a step can follow."""

    num_bytes: int
    most_nodes: int


class NoStates:
    """Of models without recurrent layers."""

    num_bytes = 0
    """Memory for all states that there may be."""
    most_nodes: int | None = None
    """The widest draft that a step can follow; None: any."""

    @property
    def num_running(self) -> int:
        """Requests that have a state."""
        return 0

    @property
    def num_saved(self) -> int:
        return 0

    def usable(self, request: Request, matched: list[int]) -> list[int]:
        """The first of these known blocks of the request, which it can start behind."""
        return matched

    def start(self, request: Request, num_blocks: int) -> None:
        """The request runs from now on, from behind so many known blocks."""

    def placed(self, span: ScheduledSpan) -> ScheduledSpan:
        """The request's next span, with its states."""
        return span

    def settle(self, span: ScheduledSpan, path: Sequence[int]) -> None:
        """The span is committed, with these draft tokens; its full blocks are published."""

    def release(self, request: Request) -> None:
        """The request does not run any more."""

    def forget(self, block_hash: bytes) -> None:
        """The block is not known any more."""

    def check_integrity(self, running: Sequence[Request]) -> None:
        """Every slot is in one place."""


NO_STATES = NoStates()


class RecurrentStates(NoStates):
    """interval: tokens between two saved states of a prompt, a multiple of the block size. `saves`: whether there is a
    prefix cache."""

    def __init__(self, pool: StatePool, room: StateRoom, block_size: int, interval: int, *, saves: bool) -> None:
        self.pool, self.block_size, self.interval, self.saves = pool, block_size, interval, saves
        self.num_bytes, self.most_nodes = room
        self.running: dict[str, RequestStates] = {}
        """By request."""

    @property
    def num_running(self) -> int:
        return len(self.running)

    @property
    def num_saved(self) -> int:
        return len(self.pool.by_hash)

    def usable(self, request: Request, matched: list[int]) -> list[int]:
        for count in range(len(matched), 0, -1):
            if self.pool.find(request.hashes[count - 1]) is not None:
                return matched[:count]
        return []

    def start(self, request: Request, num_blocks: int) -> None:
        source = EMPTY
        if num_blocks:
            found = self.pool.find(request.hashes[num_blocks - 1])
            assert found is not None, "`usable` has found it"
            self.pool.pin(found)
            source = found
        self.running[request.id] = RequestStates(self.pool.take_pair(), source, num_blocks * self.block_size)

    def placed(self, span: ScheduledSpan) -> ScheduledSpan:
        states = self.running[span.request.id]
        end = span.start + span.known
        if self.saves:
            for position in self.positions(states.position, end):
                slot = self.pool.take_saved()
                if slot is None:
                    break
                states.saving.append((position, slot))
        followed = states.path[: span.start - states.position]
        target = states.own.other_than(states.source)
        places = SpanStates(states.position, states.source, followed, target, tuple(states.saving))
        return msgspec.structs.replace(span, states=places)

    def positions(self, begin: int, end: int) -> Iterator[int]:
        """Where states are saved among the tokens (begin, end]."""
        last = end // self.block_size * self.block_size
        yield from range((begin // self.interval + 1) * self.interval, last, self.interval)
        if last > begin:
            yield last

    def settle(self, span: ScheduledSpan, path: Sequence[int]) -> None:
        request, states = span.request, self.running[span.request.id]
        assert span.states is not None, "the span was made with them"
        self.unpin(states)
        states.source, states.position, states.path = span.states.target, span.start + span.known, tuple(path)
        for position, slot in states.saving:
            block_hash = request.hashes[position // self.block_size - 1]
            if not self.pool.save(block_hash, slot) or position % self.interval == 0:
                continue
            if position > request.prompt_len:
                if states.newest_saved is not None:
                    self.pool.forget(states.newest_saved)
                states.newest_saved = block_hash
        states.saving.clear()

    def release(self, request: Request) -> None:
        states = self.running.pop(request.id, None)
        if states is not None:
            self.unpin(states)
            self.pool.free += [slot for _, slot in states.saving]
            self.pool.release_pair(states.own)

    def unpin(self, states: RequestStates) -> None:
        """What it started from may be evicted."""
        if states.source >= self.pool.first_saved:
            self.pool.unpin(states.source)

    def forget(self, block_hash: bytes) -> None:
        self.pool.forget(block_hash)

    def check_integrity(self, running: Sequence[Request]) -> None:
        assert {request.id for request in running} == {*self.running}, "other requests have states than those that run"
        saving = [slot for states in self.running.values() for _, slot in states.saving]
        self.pool.check_integrity(len(self.running), saving)
