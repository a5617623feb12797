"""Checks of configured values that the engine and the server share. Their errors name the option."""

from __future__ import annotations

import math

from specserve.errors import ConfigError


def choose(name: str, got: str, allowed: tuple[str, ...]) -> None:
    if got not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}; got {got!r}.")


def at_least(name: str, got: int, least: int) -> None:
    if got < least:
        raise ConfigError(f"{name} must be at least {least}; got {got}.")


def above_zero(name: str, seconds: float | None) -> None:
    """None is allowed: it switches the option off."""
    if seconds is not None and not 0 < seconds < math.inf:  # also false for NaN
        raise ConfigError(
            f"{name} must be a number of seconds above 0; got {seconds:g}. Leave it out to switch it off."
        )
