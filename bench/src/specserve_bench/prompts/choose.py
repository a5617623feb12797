"""Which prompts a run has: kinds and files in turn, as many as are asked for."""

from __future__ import annotations

from itertools import count, cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from specserve.errors import ConfigError
from specserve_bench.prompts.built_in import KINDS, built_in
from specserve_bench.prompts.files import read_prompts
from specserve_bench.prompts.random_tokens import random_prompt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from specserve_bench.prompts.prompt import Prompt

RANDOM = "random"
SUFFIXES = (".json", ".jsonl")


class Choice(NamedTuple):
    """What decides which prompts there are."""

    names: Sequence[str]
    """KINDS, random, or files."""
    seed: int
    random_length: int
    """Of random prompts, in tokens."""
    pool: Sequence[int] | None
    """Token ids of random prompts; None where the server has no tokenizer to ask."""


def choose_prompts(choice: Choice, num_prompts: int) -> list[Prompt]:
    """A prompt of each name in turn; files begin anew at their end. ConfigError where a name is none."""
    sources = [source(name, choice) for name in choice.names]
    return list(islice((next(each) for each in cycle(sources)), num_prompts))


def source(name: str, choice: Choice) -> Iterator[Prompt]:
    if name in KINDS:
        return (built_in(name, number, choice.seed) for number in count())
    if name == RANDOM:
        return random_prompts(choice)
    if name.endswith(SUFFIXES):
        return cycle(read_prompts(Path(name)))
    raise ConfigError(
        f"bench: --prompts takes {', '.join(KINDS)}, {RANDOM}, or a file ({', '.join(SUFFIXES)}); got {name!r}."
    )


def random_prompts(choice: Choice) -> Iterator[Prompt]:
    if choice.pool is None:
        raise ConfigError(
            "bench: random prompts need the server's POST /tokenize, which it does not have; use built-in prompts "
            f"({', '.join(KINDS)}) or a file."
        )
    pool = choice.pool
    return (random_prompt(pool, choice.random_length, number, choice.seed) for number in count())
