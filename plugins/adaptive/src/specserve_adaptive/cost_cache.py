"""What steps take, kept across starts: one JSON file for each machine, model and configuration.

The machine may have been busy when a start measured them. So each start measures again, for a moment, and the file
keeps the fastest passes that were ever seen.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from specserve.api import ConfigError, CostTable
from specserve.api.files import user_cache
from specserve_adaptive.measured_tables import fastest, plausible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.api import PlanningRuntime

logger = logging.getLogger(__name__)
AUTO, OFF = "auto", "none"
NOT_KEPT = "adaptive: what steps take is measured at every start, since it cannot be kept: %s"
MOMENT = 0.25
"""Seconds of measuring where a file has what an earlier start measured."""


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file."""

    identity: dict[str, str]
    rows: list[int]
    seconds: list[float]
    per_key: float
    buckets: list[int]

    @property
    def is_sound(self) -> bool:
        ascends = bool(self.rows) and self.rows == sorted(set(self.rows)) and self.rows[0] > 0
        return ascends and len(self.rows) == len(self.seconds) and min(self.seconds) > 0.0 and self.per_key >= 0.0


def kept_costs(where: str, runtime: PlanningRuntime, seconds: float) -> CostTable:
    """Measured in about so long and kept; in a moment where an earlier start with the same identity kept its own.

    `where`: a directory, auto or none. Raises ConfigError for a directory that cannot be used.
    """
    if where == OFF:
        return plausible(runtime.measure_costs(seconds))
    try:
        file = directory(where) / f"{digest(runtime.identity)}.json"
    except OSError as error:
        logger.warning(NOT_KEPT, error)
        return plausible(runtime.measure_costs(seconds))
    known = read(file, runtime.identity)
    table = runtime.measure_costs(seconds if known is None else min(MOMENT, seconds))
    if known is not None:
        table = fastest(known, table) if known.buckets == table.buckets else runtime.measure_costs(seconds)
    table = plausible(table)
    if table == known:
        return table
    try:
        write(file, runtime.identity, table)
    except OSError as error:
        if where != AUTO:
            reason = error.strerror or error
            text = f"{where!r} cannot be written to: {reason}. Name a directory that can, or none"
            raise ConfigError(f"adaptive.cost_cache = {text}.") from None
        logger.warning(NOT_KEPT, error)
    return table


def directory(where: str) -> Path:
    """Raises OSError for a user without a home."""
    return user_cache("step-costs") if where == AUTO else Path(where)


def digest(identity: Mapping[str, str]) -> str:
    return hashlib.sha256(msgspec.json.encode(dict(sorted(identity.items())))).hexdigest()[:32]


def read(file: Path, identity: Mapping[str, str]) -> CostTable | None:
    """None for a file that is not there, is damaged or is of something else: it is measured and written anew."""
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=Kept)
    except (OSError, msgspec.DecodeError):
        return None
    if kept.identity != dict(identity) or not kept.is_sound:
        return None
    return CostTable(kept.rows, kept.seconds, kept.per_key, tuple(kept.buckets))


def write(file: Path, identity: Mapping[str, str], table: CostTable) -> None:
    """Whole or not at all: another server may read it, and other engines may write it at the same time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    kept = Kept(dict(identity), list(table.rows), list(table.seconds), table.per_key, list(table.buckets))
    unfinished = file.with_suffix(f".{uuid4().hex}")
    unfinished.write_bytes(msgspec.json.encode(kept))
    unfinished.replace(file)
