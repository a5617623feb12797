"""Checks of configured values that the engine and the server share. Their errors name the option."""

from __future__ import annotations

from specserve.errors import ConfigError


def choose(name: str, got: str, allowed: tuple[str, ...]) -> None:
    if got not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}; got {got!r}.")


def at_least(name: str, got: int, least: int) -> None:
    if got < least:
        raise ConfigError(f"{name} must be at least {least}; got {got}.")
