"""Where things for aarch64 lie: all under build/arm, nothing is installed on the machine but by its package manager."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "arm"
SYSROOT, SITE, OVERLAY = BUILD / "sysroot", BUILD / "site", BUILD / "plugins"
"""The system with its Python; wheels, unpacked; the native plugins with their modules for aarch64."""
STRESS = BUILD / "stress"
"""The stress program of the cpu plugin."""
NATIVE = ("cpu", "ngram", "adaptive")
PURE = (
    *("checks", "core", "draft_models", "server", "page", "workbench", "demo"),
    *(f"plugins/{name}" for name in ("eagle", "graphs", "hybrid_attn", "lora")),
)
"""Distributions without native code, which are read where they lie."""


def python_version() -> str:
    """Of the sysroot: `3.11`."""
    return (SYSROOT / "usr" / "bin" / "python3").readlink().name.removeprefix("python")
