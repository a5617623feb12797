"""The replay loop: a drafter proposes, the recorded output accepts or rejects, the drafter is fed what was emitted.

Owns the loop, the acceptance walk and the validation of drafts. Knows no drafter.
"""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple, Protocol

from specserve_bench.replay.stats import EMPTY_BINS, Bin, ReplayStats, add_to_bins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from specserve_bench.replay.trace import Trace


class Draft(NamedTuple):
    """A tree of proposed tokens, a parent before its children; parent -1 is the last emitted token."""

    tokens: Sequence[int]
    parents: Sequence[int]
    survival: Sequence[float]
    """Estimates of P(a node and all its ancestors are accepted); empty when the drafter gives none."""


class ReplayDrafter(Protocol):
    """Serves one request at a time, from `start` to `stop`. It may keep state between requests."""

    def start(self, prompt: Sequence[int]) -> None: ...

    def propose(self, limit: int) -> Draft | None:
        """At most `limit` nodes that continue the tokens fed so far; None or no nodes is no draft."""

    def feed(self, tokens: Sequence[int]) -> None:
        """Emitted tokens in order: the accepted ones and the bonus token."""

    def stop(self) -> None: ...


class DrafterVariant(NamedTuple):
    """A drafter in one setting."""

    name: str
    setting: str
    make: Callable[[], ReplayDrafter]
    reused: bool
    """One instance replays all traces; else each trace gets a new instance."""


class DraftError(Exception):
    """A drafter broke the protocol, so its statistics would be meaningless."""


def replay_all(variant: DrafterVariant, traces: Sequence[Trace], budget: int) -> Iterator[tuple[Trace, ReplayStats]]:
    """Each trace with its statistics; kinds of traces alternate: edit, code, qa, chat, edit, ..."""
    drafter = variant.make()
    for trace in interleaved(traces):
        yield trace, replay(drafter, trace.prompt, trace.output, budget)
        if not variant.reused:
            drafter = variant.make()


def interleaved(traces: Sequence[Trace]) -> Iterator[Trace]:
    by_kind: defaultdict[str, list[Trace]] = defaultdict(list)
    for trace in traces:
        by_kind[trace.kind].append(trace)
    return (trace for row in zip_longest(*by_kind.values()) for trace in row if trace is not None)


def by_kind(replayed: Sequence[tuple[Trace, ReplayStats]]) -> Mapping[str, ReplayStats]:
    """Sums over traces, so a long trace weighs more than a short one."""
    sums: defaultdict[str, ReplayStats] = defaultdict(ReplayStats)
    for trace, stats in replayed:
        sums[trace.kind] += stats
    return dict(sums)


def replay(drafter: ReplayDrafter, prompt: Sequence[int], output: Sequence[int], budget: int) -> ReplayStats:
    """Emit `output` after `prompt`, with at most `budget` drafted nodes per step. The last step is cut at the end."""
    bins = list[Bin](EMPTY_BINS)
    num_steps = num_drafted = num_accepted = position = 0
    draft_seconds = 0.0
    ingest_seconds = -time.perf_counter()
    drafter.start(prompt)
    ingest_seconds += time.perf_counter()
    while position < len(output):
        began = time.perf_counter()
        draft = drafter.propose(budget)
        draft_seconds += time.perf_counter() - began
        num_steps += 1
        accepted = 0
        if draft is not None and draft.tokens:
            validate(draft, budget)
            depths = accepted_depths(draft, output, position)
            add_to_bins(bins, calibration_samples(draft, depths, len(output) - position))
            num_drafted += len(draft.tokens)
            accepted = min(max(depths), len(output) - position - 1)
        num_accepted += accepted
        emitted = output[position : position + accepted + 1]
        position += len(emitted)
        began = time.perf_counter()
        drafter.feed(emitted)
        draft_seconds += time.perf_counter() - began
    ingest_seconds -= time.perf_counter()
    drafter.stop()
    ingest_seconds += time.perf_counter()
    return ReplayStats(
        position, num_steps, num_drafted, num_accepted, draft_seconds, ingest_seconds, len(prompt), tuple(bins)
    )


def accepted_depths(draft: Draft, output: Sequence[int], position: int) -> list[int]:
    """Per node its depth (from 1) if it and all its ancestors equal the output at `position`, else 0.

    The maximum is the number of nodes that the acceptance walk accepts.
    """
    depths: list[int] = []
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        depth = 1 if parent < 0 else depths[parent] + 1
        parent_accepted = parent < 0 or depths[parent] > 0
        at = position + depth - 1
        depths.append(depth if parent_accepted and at < len(output) and output[at] == token else 0)
    return depths


def calibration_samples(draft: Draft, depths: Sequence[int], num_left: int) -> list[tuple[float, bool]]:
    """(estimated survival, accepted) of every node, without nodes past the end of the output."""
    levels: list[int] = []
    for parent in draft.parents:
        levels.append(1 if parent < 0 else levels[parent] + 1)
    nodes = zip(draft.survival, depths, levels, strict=False)
    return [(survival, depth > 0) for survival, depth, level in nodes if level <= num_left]


def validate(draft: Draft, limit: int) -> None:
    if len(draft.tokens) > limit:
        raise DraftError(f"the drafter proposed {len(draft.tokens)} nodes; the limit is {limit}.")
    if len(draft.parents) != len(draft.tokens) or len(draft.survival) not in (0, len(draft.tokens)):
        raise DraftError(
            f"{len(draft.tokens)} tokens came with {len(draft.parents)} parents and {len(draft.survival)} survivals."
        )
    for node, parent in enumerate(draft.parents):
        if not -1 <= parent < node:
            raise DraftError(f"node {node} has the parent {parent}; a parent is -1 or a node before its child.")
