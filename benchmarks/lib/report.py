"""What a case returns, how it is printed, and the JSON file that records it.

Owns the layout of tables and the record of machine, versions and threads with every result. Knows no case.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import msgspec

from specserve.host_cores import usable_cores
from specserve.host_memory import total_memory
from specserve.processor import processor_name

RESULTS = Path(__file__).parents[1] / "results"
PACKAGES = ("specserve", "specserve-demo", "torch", "transformers", "aiohttp", "msgspec")


class Options(NamedTuple):
    """What the command line chose for every case."""

    threads: int
    quick: bool
    profile: bool
    rest: tuple[str, ...] = ()
    """Flags that the case parses itself."""

    def rounds(self, full: int, quick: int) -> int:
        return quick if self.quick else full


class Check(msgspec.Struct, frozen=True):
    """A measured value and its target."""

    what: str
    got: float
    target: float
    at_most: bool
    """False: at least."""
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.got <= self.target if self.at_most else self.got >= self.target

    def sentence(self) -> str:
        bound = "at most" if self.at_most else "at least"
        verdict = "met" if self.met else "MISSED"
        return f"{verdict}: {self.what} {self.got:.4g}{self.unit}, target {bound} {self.target:g}{self.unit}"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One table, its checks, and every measurement behind them."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    checks: list[Check] = []
    notes: list[str] = []
    raw: dict[str, list[float]] = {}
    """By variant, the measurement of every round, in order."""
    details: str = ""
    """Printed after the table: further tables, or a profile."""


def render(name: str, result: Result) -> str:
    """The result as plain text; the first column is left-aligned, the others to the right."""
    lines = [f"== {name}: {result.title}", *aligned([result.columns, *result.rows])]
    lines += result.notes
    lines += [check.sentence() for check in result.checks]
    if result.details:
        lines += ["", result.details.rstrip()]
    return "\n".join(lines) + "\n"


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
        for row in rows
    ]


def save(name: str, result: Result, options: Options, load_before: tuple[float, float, float]) -> Path:
    """Write the result with its machine, versions and options; returns the file."""
    now = datetime.now(UTC)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{now:%Y%m%dT%H%M%S}-{name}.json"
    record = {
        "benchmark": name,
        "date": now.isoformat(timespec="seconds"),
        "options": options._asdict(),
        "machine": machine(),
        "load_before": load_before,
        "versions": versions(),
        "commit": commit(),
        "result": msgspec.to_builtins(result),
        "checks_met": [check.met for check in result.checks],
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
    return path


def machine() -> dict[str, object]:
    return {
        "cpu": processor_name(),
        "cores": usable_cores(),
        "memory_bytes": total_memory(),
        "system": platform.platform(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
    }


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def commit() -> str:
    """The checkout's commit, with a + if it has changes; empty outside of a repository."""
    try:
        run = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"],
            cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
        )  # fmt: skip
    except OSError:
        return ""
    return run.stdout.strip()
