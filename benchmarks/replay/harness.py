"""The replay: a drafter proposes, the text that really followed accepts, the drafter is fed what was emitted.

Owns the loop, the acceptance walk and the checks of a draft. Knows no drafter and no benchmark.
"""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple, Protocol

from benchmarks.replay.stats import NO_BINS, Bin, Figures, add_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.replay.texts import Stream


class Draft(NamedTuple):
    """A tree of proposed tokens, a parent before its children; -1 is the last token of the text so far."""

    tokens: Sequence[int]
    parents: Sequence[int]
    survival: Sequence[float]
    """The stated probability that a node and all its ancestors come true; empty when the drafter states none."""


class ReplayDrafter(Protocol):
    """One request at a time, `start` to `stop`; what it keeps between requests is its own affair."""

    def start(self, prompt: Sequence[int]) -> None: ...

    def propose(self, limit: int) -> Draft | None:
        """At most `limit` nodes behind everything fed so far; None or no nodes is no draft."""

    def feed(self, tokens: Sequence[int]) -> None:
        """Tokens that were emitted, in order: accepted ones and the bonus."""

    def stop(self) -> None: ...


class Contender(NamedTuple):
    """A drafter in one setting."""

    name: str
    setting: str
    make: Callable[[], ReplayDrafter]
    keeps: bool
    """One drafter replays all streams; else each stream gets a fresh one."""


class DraftError(Exception):
    """A drafter broke the protocol; its figures would mean nothing."""


def replay_all(contender: Contender, streams: Sequence[Stream], budget: int) -> Iterator[tuple[Stream, Figures]]:
    """Each stream with its figures. A drafter that keeps something gets the kinds in turn: edit, code, qa, edit, ..."""
    drafter = contender.make()
    for stream in interleaved(streams):
        yield stream, replay(drafter, stream.prompt, stream.output, budget)
        if not contender.keeps:
            drafter = contender.make()


def interleaved(streams: Sequence[Stream]) -> Iterator[Stream]:
    by_kind: defaultdict[str, list[Stream]] = defaultdict(list)
    for stream in streams:
        by_kind[stream.kind].append(stream)
    return (stream for row in zip_longest(*by_kind.values()) for stream in row if stream is not None)


def by_kind(replayed: Sequence[tuple[Stream, Figures]]) -> Mapping[str, Figures]:
    """Sums, so a long stream weighs more than a short one."""
    sums: defaultdict[str, Figures] = defaultdict(Figures)
    for stream, figures in replayed:
        sums[stream.kind] |= figures
    return dict(sums)


def replay(drafter: ReplayDrafter, prompt: Sequence[int], output: Sequence[int], budget: int) -> Figures:
    """Emit `output` behind `prompt`, with at most `budget` nodes a step. The last step emits only what is left."""
    bins = list[Bin](NO_BINS)
    num_steps = num_drafted = num_accepted = position = 0
    seconds = 0.0
    start_seconds = -time.perf_counter()
    drafter.start(prompt)
    start_seconds += time.perf_counter()
    while position < len(output):
        began = time.perf_counter()
        draft = drafter.propose(budget)
        seconds += time.perf_counter() - began
        num_steps += 1
        accepted = 0
        if draft is not None and draft.tokens:
            check(draft, budget)
            depths = true_depths(draft, output, position)
            add_nodes(bins, judged(draft, depths, len(output) - position))
            num_drafted += len(draft.tokens)
            accepted = min(max(depths), len(output) - position - 1)
        num_accepted += accepted
        emitted = output[position : position + accepted + 1]
        position += len(emitted)
        began = time.perf_counter()
        drafter.feed(emitted)
        seconds += time.perf_counter() - began
    start_seconds -= time.perf_counter()
    drafter.stop()
    start_seconds += time.perf_counter()
    return Figures(position, num_steps, num_drafted, num_accepted, seconds, start_seconds, len(prompt), tuple(bins))


def true_depths(draft: Draft, output: Sequence[int], position: int) -> list[int]:
    """For each node its depth (from 1) when it and all its ancestors are what follows at `position`, else 0.

    The deepest of them is what the walk along true children accepts.
    """
    depths: list[int] = []
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        depth = 1 if parent < 0 else depths[parent] + 1
        true_so_far = parent < 0 or depths[parent] > 0
        at = position + depth - 1
        depths.append(depth if true_so_far and at < len(output) and output[at] == token else 0)
    return depths


def judged(draft: Draft, depths: Sequence[int], num_left: int) -> list[tuple[float, bool]]:
    """(stated survival, came true) of every node, except those behind the end of the text, which nothing judges."""
    levels: list[int] = []
    for parent in draft.parents:
        levels.append(1 if parent < 0 else levels[parent] + 1)
    nodes = zip(draft.survival, depths, levels, strict=False)
    return [(survival, depth > 0) for survival, depth, level in nodes if level <= num_left]


def check(draft: Draft, limit: int) -> None:
    if len(draft.tokens) > limit:
        raise DraftError(f"the drafter proposed {len(draft.tokens)} nodes; at most {limit} were asked for.")
    if len(draft.parents) != len(draft.tokens) or len(draft.survival) not in (0, len(draft.tokens)):
        raise DraftError(
            f"{len(draft.tokens)} tokens came with {len(draft.parents)} parents and {len(draft.survival)} survivals."
        )
    for node, parent in enumerate(draft.parents):
        if not -1 <= parent < node:
            raise DraftError(f"node {node} has the parent {parent}; a parent is -1 or a node before its child.")
