"""Texts of prompts: code-like lines from a seed, and three long prefixes that many prompts share."""

from __future__ import annotations

import random

VERBS = ("add", "load", "merge", "split", "parse", "send", "close", "read")
NOUNS = ("file", "block", "token", "row", "table", "name", "value", "queue")


def line(rng: random.Random) -> str:
    verb, noun, other = rng.choice(VERBS), rng.choice(NOUNS), rng.choice(NOUNS)
    return rng.choice(
        (
            f"def {verb}_{noun}(self, {other}):\n",
            f"    return self.{noun}.{verb}({other})\n",
            f"    for {noun} in {other}s:\n",
            f"        {noun} = {verb}({other}, {rng.randrange(10)})\n",
            f"    # {verb} the {noun} of each {other}\n",
        )
    )


def text(rng: random.Random, lines: int) -> str:
    return "".join(line(rng) for _ in range(lines))


PREFIXES = tuple(text(random.Random(f"prefix {i}"), 8) for i in range(3))
