"""Runs of the conformance kit in a process of its own, as an author starts it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def run_kit(
    folder: Path,
    *names: str,
    site: Path | None = None,
    settings: tuple[str, ...] = (),
    only: str = "",
    report: Path | None = None,
    as_installed: bool = False,
) -> tuple[int, str]:
    """Its exit code, and what it said. `site`: where more plugins are found; `only`: the names of tests; `report`:
    where it writes what it found; `as_installed`: with all plugins that pytest finds, as an author has it."""
    plugins = [part for name in names for part in ("--specserve-plugin", name)]
    options = [part for each in settings for part in ("--specserve-set", each)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(site or "")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins, *options]
    if as_installed:
        command += ["-p", "no:asyncio"]
    else:  # those of the dev group take two seconds to import
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        command += ["-p", "specserve_workbench.testing.fixtures"]
    command += ["-k", only] if only else []
    command += ["--specserve-report", str(report)] if report else []
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def table_of(said: str) -> str:
    return said[said.index("= conformance =") :]


def counts_of(table: str, plugin: str = "") -> list[int]:
    """Accepted draft tokens of each case; `plugin`: of those of one plugin."""
    lines = [line for line in table.splitlines() if not plugin or re.match(rf"\w+ +{plugin}: ", line)]
    return [int(accepted) for accepted in re.findall(r"(\d+) of \d+ draft tokens of ", "\n".join(lines))]
