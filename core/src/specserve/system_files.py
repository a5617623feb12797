"""Files in which the system says what it is and what it has."""

from __future__ import annotations

from pathlib import Path

SYSTEM = Path("/")
"""Where they are. Tests have a folder of their own."""


def read_system_file(path: Path) -> str:
    """Without white space around; empty where it is missing or not readable."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
