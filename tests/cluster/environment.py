"""The environment build/cluster/venv: Ray and specserve-ray, beside what .venv has. Standard library only.

The product and torch are .venv's, by a path file: nothing is installed twice, and Ray's versions of shared libraries go
first. A finished environment holds its recipe in a stamp.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
VENV = ROOT / "build" / "cluster" / "venv"
STAMP = VENV / ".made"
RAY = "ray[serve]==2.60.0"
PROJECT = ROOT / "deploy" / "ray"
PATH_FILE = "specserve-product.pth"


class InstallError(Exception):
    """The environment could not be made; the message says what failed."""


def make() -> Path:
    """Its Python. InstallError where it cannot be installed."""
    python = VENV / "bin" / "python"
    recipe = f"{sys.version}\n{sys.prefix}\n{RAY}\n{(PROJECT / 'pyproject.toml').read_text(encoding='utf-8')}"
    if not STAMP.exists() or STAMP.read_text(encoding="utf-8") != recipe:
        print(f"== installing {RAY} and specserve-ray into {VENV.relative_to(ROOT)}", flush=True)
        shutil.rmtree(VENV, ignore_errors=True)
        run(sys.executable, "-m", "venv", str(VENV))
        pip = (str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q")
        run(*pip, RAY)
        run(*pip, "--no-deps", "-e", str(PROJECT))
        lib = Path(sysconfig.get_path("purelib", vars={"base": str(VENV), "platbase": str(VENV)}))
        product = sysconfig.get_path("purelib")
        (lib / PATH_FILE).write_text(f"import site; site.addsitedir({product!r})\n", encoding="utf-8")
        STAMP.write_text(recipe, encoding="utf-8")
    return python


def run(*command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        lines = (ended.stderr or ended.stdout).strip().splitlines() or ["it said nothing"]
        raise InstallError(f"{' '.join(command)} ended with exit code {ended.returncode}: {lines[-1][:300]}")
