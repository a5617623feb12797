"""Integer hashing that every part of sampling derives its randomness from. No torch.

The mixer is the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014): a bijection on 64-bit integers whose output bits each depend on all input bits.
"""

from __future__ import annotations

import secrets

MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def mix64(x: int) -> int:
    """Mix the low 64 bits of x."""
    x &= MASK
    x = ((x ^ (x >> 30)) * MULTIPLIERS[0]) & MASK
    x = ((x ^ (x >> 27)) * MULTIPLIERS[1]) & MASK
    return x ^ (x >> 31)


def choice_seed(seed: int | None, prompt_index: int, choice_index: int) -> int | None:
    """The seed of choice j of prompt i; (0, 0) is the seed itself, None stays None (drawn at admission)."""
    if seed is None or (prompt_index, choice_index) == (0, 0):
        return seed
    return mix64(mix64(mix64(seed) + prompt_index * GAMMA) + (choice_index + 1) * GAMMA)


def row_key(seed: int, index: int) -> int:
    """The key of the noise of generated token `index` (0 first) of a request."""
    return mix64(mix64(seed) + (index + 1) * GAMMA)


def random_seed(arrival: int = 0) -> int:
    """Another one at each call."""
    return secrets.randbits(64)


def arrival_seed(seed: int, arrival: int) -> int:
    """The seed of request number `arrival`, 0 first: the same after each start with this seed."""
    return mix64(mix64(seed) + (arrival + 1) * GAMMA)
