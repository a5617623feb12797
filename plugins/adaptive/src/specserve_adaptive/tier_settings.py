"""The settings of tiers: from options, or from a TOML or JSON file with candidates by batch size."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from specserve.api import ConfigError
from specserve.api.files import convert, explain_json_error

if TYPE_CHECKING:
    from pathlib import Path

Candidates = tuple[int, ...]
TIER_SETTINGS = ("candidates", "ema_alpha", "warm_up", "interval", "up_hysteresis", "down_hysteresis")


class TierSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What such a file holds."""

    candidates: Candidates = (1, 3, 7, 15)
    by_batch_size: dict[str, Candidates] = {}
    """Candidates by the number of running requests from which they hold; below the smallest, `candidates` hold."""
    ema_alpha: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.2
    warm_up: Annotated[int, Meta(ge=0)] = 10
    interval: Annotated[int, Meta(ge=1)] = 5
    up_hysteresis: float = 0.0
    down_hysteresis: float = -0.25

    def __post_init__(self) -> None:
        check_candidates("candidates", self.candidates)
        for size, candidates in self.by_batch_size.items():
            if not (size.isascii() and size.isdigit() and int(size) > 0):
                raise ConfigError(f"by_batch_size: {size!r} is no batch size; use numbers from 1 on.")
            check_candidates(f"by_batch_size.{size}", candidates)

    @property
    def tables(self) -> dict[int, Candidates]:
        """By batch size from which they hold, ascending; the first is 1."""
        by_size = {int(size): candidates for size, candidates in self.by_batch_size.items()}
        return dict(sorted(({1: self.candidates} | by_size).items()))


def check_candidates(name: str, candidates: Candidates) -> None:
    if not candidates:
        raise ConfigError(f"{name} is empty; name at least one number of draft tokens, as in [1, 3, 7, 15].")
    if min(candidates) < 0:
        raise ConfigError(f"{name}: {min(candidates)} is no number of draft tokens; use numbers from 0 on.")
    if list(candidates) != sorted(set(candidates)):
        raise ConfigError(f"{name} must ascend, without repetition; got {list(candidates)}.")


def read_settings(file: Path) -> TierSettings:
    """Raises ConfigError for a file that cannot be read or states something else."""
    where = f"adaptive.config={str(file)!r}"
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{where} cannot be read: {reason}. Name a TOML or JSON file.") from None
    try:
        table = msgspec.json.decode(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{where} is not valid JSON: {explain_json_error(text.encode(), error)}.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is neither JSON, which begins with a brace, nor valid TOML: {error}.") from None
    try:
        return convert(table, TierSettings, lambda wrong: ConfigError(str(wrong)))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
