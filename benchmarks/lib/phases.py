"""Workloads whose text changes: phases that repeat themselves and phases that do not, in turns or side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchmarks.lib.alternating import sums_in_turns
from benchmarks.lib.decoding import Decoded, decode_in_slices, decode_while_all_run
from benchmarks.lib.workload import edit_prompt, prompts, seeded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from specserve.engine.engine import Engine
    from specserve.protocols import Tokenizer
    from specserve.types import GenerateRequest

LOW, HIGH, MIXED = "low", "high", "mixed"
TRANSITION = (LOW, HIGH, LOW, HIGH)
FILE_LEN, TEXT_LEN = 400, 400
LEAST_REQUESTS = 8
"""A phase serves at least so many, one group after the other."""


class Phase(NamedTuple):
    """A stretch of the workload. `groups`: requests that run concurrently, one group after the other."""

    name: str
    groups: list[list[GenerateRequest]]
    decode: Callable[[Engine, list[GenerateRequest]], Iterator[Decoded]]


class Phases:
    """Makes the phases of every round; no prompt comes twice."""

    def __init__(self, tokenizer: Tokenizer, num_requests: int) -> None:
        self.tokenizer = tokenizer
        self.texts = iter(prompts(tokenizer, num_requests, TEXT_LEN))
        self.num_made = 0

    def request(self, repeats: bool) -> GenerateRequest:
        """Greedy, of an edited copy; or sampled, of new text."""
        self.num_made += 1
        text = next(self.texts)
        if repeats:
            return seeded(f"high{self.num_made}", edit_prompt(self.tokenizer, text), 0.0, self.num_made)
        return seeded(f"low{self.num_made}", text, 1.0, self.num_made)

    def make(self, name: str, concurrent: int) -> Phase:
        """With `mixed`, every other request of a group repeats itself."""
        groups = [
            [self.request(name == HIGH or (name == MIXED and i % 2 == 0)) for i in range(concurrent)]
            for _ in range(max(1, LEAST_REQUESTS // concurrent))
        ]
        return Phase(name, groups, decode_while_all_run if name == MIXED else decode_in_slices)


def in_turns(engines: Mapping[str, Engine], phase: Phase) -> dict[str, Decoded]:
    """What each engine does with the phase; all run it at the same time, a few steps each."""
    sums = dict.fromkeys(engines, Decoded())
    for group in phase.groups:
        running = {name: phase.decode(engine, group) for name, engine in engines.items()}
        for name, decoded in sums_in_turns(running).items():
            sums[name] = sums[name].plus(decoded)
    return sums
