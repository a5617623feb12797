"""Wheels for aarch64, unpacked into a folder: pip chooses and unpacks them, nothing of them runs here."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

from made import once
from places import BUILD, SITE, python_version
from tools import PrepareError

REQUIREMENTS = Path(__file__).parent / "requirements.txt"
TORCH = "torch==2.8.0"
"""The last one whose wheel for aarch64 is on PyPI and links no library of CUDA's. The engine and the tests that run
here do without what later ones have."""


def make() -> None:
    once(SITE, [TORCH, REQUIREMENTS.read_text(), versions(), python_version()], fetch)


def versions() -> str:
    """Of all that .venv has, as pip's constraints."""
    known = {dist.name.lower(): dist.version for dist in metadata.distributions()}
    return "\n".join(f"{name}=={version}" for name, version in sorted(known.items()) if name != "torch")


def fetch() -> None:
    constraints = BUILD / "constraints.txt"
    constraints.write_text(versions())
    print("== fetching wheels for aarch64 (50 MB)", flush=True)
    install("-r", REQUIREMENTS, "-c", constraints)
    # its requirements are judged by this machine's processor
    print(f"== fetching {TORCH} for aarch64 (102 MB)", flush=True)
    install("--no-deps", TORCH)


def install(*arguments: object) -> None:
    version = python_version()
    tags = [f"cp{version.replace('.', '')}", "abi3", "none"]
    platforms = ["manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"]
    command = [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--only-binary=:all:"),
        *("--no-compile", "--target", SITE, "--python-version", version, "--implementation", "cp"),
        *(part for tag in tags for part in ("--abi", tag)),
        *(part for each in platforms for part in ("--platform", each)),
        *arguments,
    ]
    run = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if run.returncode:
        raise PrepareError(f"pip could not fetch wheels for aarch64:\n{run.stderr.strip()}")
