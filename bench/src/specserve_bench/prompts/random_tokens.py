"""Random prompts: token ids of words that the server's tokenizer knows, so that their length is exact."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from specserve_bench.prompts.prompt import Prompt
from specserve_bench.prompts.words import CITIES, ENTITIES, FIELDS, PEOPLE

if TYPE_CHECKING:
    from collections.abc import Sequence

VOCABULARY = " ".join((*ENTITIES, *FIELDS, *PEOPLE, *CITIES))
"""What the server tokenizes; random prompts are made of these tokens."""


def random_prompt(pool: Sequence[int], length: int, number: int, seed: int) -> Prompt:
    """`length` ids of the pool. No two numbers have a prefix in common that a cache could reuse, but by chance."""
    chance = random.Random(f"{seed} {number}")
    return Prompt(kind="random", token_ids=tuple(chance.choices(pool, k=length)))
