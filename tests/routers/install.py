"""The routers' environments under build/routers, one for each line of requirements.txt. Standard library only.

A finished environment holds its recipe in a stamp: the same one is not installed again.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "routers"


def main() -> None:
    for requirement in (HERE / "requirements.txt").read_text().split():
        install(requirement)


def install(requirement: str) -> None:
    folder = BUILD / re.split("[=<>]", requirement)[0]
    stamp, wanted = folder / ".made", f"{sys.version}\n{requirement}"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"== installing {requirement} into {folder}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    subprocess.run([*pip, requirement], check=True)
    stamp.write_text(wanted)


if __name__ == "__main__":
    main()
