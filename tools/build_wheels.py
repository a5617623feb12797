"""Builds the sdists and wheels of every distribution into dist/: the first half of `make wheels`.

`build` makes the sdist, and the wheel from that sdist, in an isolated environment of what the pyproject.toml asks for:
so both are known to be complete. What is newer than its sources is kept.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from typing import TYPE_CHECKING

from distributions import DIST, PUBLISHED, PYTHON, ROOT, WORK, Distribution

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT = WORK / f"tools-{PYTHON}"
TOOLS = ("build>=1.3,<2", "abi3audit>=0.0.24,<0.1")


def main() -> None:
    tools = make_environment()
    for distribution in PUBLISHED:
        if distribution.is_fresh():
            print(f"== {distribution.name}: dist/ has it")
        else:
            build(distribution, tools)
        check_files(distribution, tools)


def make_environment() -> Path:
    python = ENVIRONMENT / "bin" / "python"
    ready = ENVIRONMENT / ".ready"
    if not ready.exists():
        print(f"== installing {' and '.join(TOOLS)} into {ENVIRONMENT.relative_to(ROOT)}", flush=True)
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        run([python, "-m", "pip", "install", "--quiet", *TOOLS], "tools")
        ready.touch()
    return python


def build(distribution: Distribution, python: Path) -> None:
    how_long = " (C++, a minute or two)" if distribution.is_native else ""
    print(f"== {distribution.name}: building{how_long}", flush=True)
    started = time.monotonic()
    run([python, "-m", "build", distribution.folder, "--outdir", DIST], distribution.name)
    built = distribution.find_built()
    if len(built) != 2:
        sys.exit(f"== {distribution.name}: expected an sdist and a wheel tagged {distribution.tag}; dist/ has {built}")
    print(f"   {', '.join(path.name for path in built)} in {time.monotonic() - started:.0f} s", flush=True)


def check_files(distribution: Distribution, python: Path) -> None:
    sdist, wheel = distribution.find_built()
    licence = (ROOT / "LICENSE").read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        kept = [archive.read(name) for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE")]
    with tarfile.open(sdist) as files:
        packed = files.extractfile(f"{sdist.name.removesuffix('.tar.gz')}/LICENSE")
        if kept != [licence] or packed is None or packed.read() != licence:
            sys.exit(f"== {distribution.name}: its sdist or its wheel lacks the licence")
    if distribution.tag.endswith("-abi3"):
        run([python, "-m", "abi3audit", "--strict", wheel], f"{distribution.name}-abi3audit")
        print("   abi3audit: uses the stable ABI of 3.12 only", flush=True)


def run(command: list[str | Path], name: str) -> None:
    """Ends with what the command said, if it fails."""
    WORK.mkdir(parents=True, exist_ok=True)
    log = WORK / f"{name}-{PYTHON}.log"
    with log.open("wb") as output:
        status = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    if status:
        sys.exit(f"{log.read_text(errors='replace')}\n== failed: {' '.join(map(str, command))}")


if __name__ == "__main__":
    main()
