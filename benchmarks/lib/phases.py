"""Workloads whose text changes: phases that repeat themselves and phases that do not, in turns or side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchmarks.lib.alternating import sums_in_turns
from benchmarks.lib.decoding import Decoded, decode_while_all_run
from benchmarks.lib.workload import NUM_TOKENS, edit_prompt, prompts, seeded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.engine.engine import Engine
    from specserve.protocols import Tokenizer
    from specserve.types import GenerateRequest

LOW, HIGH, MIXED = "low", "high", "mixed"
TRANSITION = (LOW, HIGH, LOW, HIGH)
FILE_LEN, TEXT_LEN = 400, 400
LEAST_REQUESTS = 8
"""A phase serves at least this many, one group after the other."""


class Phase(NamedTuple):
    """A stretch of the workload. `groups`: requests that run concurrently, one group after the other."""

    name: str
    groups: list[list[GenerateRequest]]


class Phases:
    """Makes the phases of every round; no prompt comes twice."""

    def __init__(self, tokenizer: Tokenizer, num_requests: int) -> None:
        self.tokenizer = tokenizer
        self.texts = iter(prompts(tokenizer, num_requests, TEXT_LEN))
        self.num_made = 0

    def low(self, num_texts: int = 1) -> GenerateRequest:
        """Sampled, of new text. Twice the text is continued by twice as many tokens."""
        self.num_made += 1
        text = self.text(num_texts)
        return seeded(f"low{self.num_made}", text, 1.0, self.num_made, num_texts * NUM_TOKENS)

    def high(self, num_texts: int = 1) -> GenerateRequest:
        """Greedy, of an edited copy."""
        self.num_made += 1
        prompt = edit_prompt(self.tokenizer, self.text(num_texts))
        return seeded(f"high{self.num_made}", prompt, 0.0, self.num_made, num_texts * NUM_TOKENS)

    def text(self, num_texts: int) -> tuple[int, ...]:
        return tuple(token for _ in range(num_texts) for token in next(self.texts))

    def make(self, name: str, concurrent: int) -> Phase:
        """With `mixed`, every other request of a group repeats itself, and all are twice as long."""
        num_groups = max(1, LEAST_REQUESTS // concurrent)
        if name == MIXED:
            return Phase(
                name, [[self.low(2) if i % 2 else self.high(2) for i in range(concurrent)] for _ in range(num_groups)]
            )
        make = self.high if name == HIGH else self.low
        return Phase(name, [[make() for _ in range(concurrent)] for _ in range(num_groups)])


def in_turns(engines: Mapping[str, Engine], phase: Phase) -> dict[str, Decoded]:
    """What each engine does with the phase, as long as all requests of a group run: all of them are concurrent in
    what is timed. All engines run it at the same time, a few steps each."""
    sums = dict.fromkeys(engines, Decoded())
    for group in phase.groups:
        running = {name: decode_while_all_run(engine, group) for name, engine in engines.items()}
        for name, decoded in sums_in_turns(running).items():
            sums[name] = sums[name].plus(decoded)
    return sums
