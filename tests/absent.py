"""Processes in which distributions of ours are missing: neither their modules nor their entry points are found."""

from __future__ import annotations

import subprocess
import sys

SERVER = ("specserve_server", "aiohttp", "prometheus_client")
WORKBENCH = ("specserve_workbench",)
HIDE = """
import sys
from importlib import metadata
absent = {absent!r}
sys.modules.update(dict.fromkeys(absent))
found = metadata.entry_points
metadata.entry_points = lambda **wanted: metadata.EntryPoints(
    point for point in found(**wanted) if point.module.partition(".")[0] not in absent
)
"""
COMMAND = """
import runpy
runpy.run_module("specserve", run_name="__main__", alter_sys=True)
"""


def command_without(absent: tuple[str, ...], program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", HIDE.format(absent=absent) + program, *arguments]


def run_without(absent: tuple[str, ...], program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = command_without(absent, program, *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def core_alone(*arguments: str) -> list[str]:
    """`python -m specserve` with no other distribution of ours than the core, the demo model and plugins."""
    return command_without((*SERVER, *WORKBENCH), COMMAND, *arguments)


def run_core_alone(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(core_alone(*arguments), capture_output=True, text=True, check=False)
