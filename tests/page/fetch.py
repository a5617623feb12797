"""Gets what `make test-page` needs beside .venv, once: chromium with its driver, and axe-core. Says what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from shutil import which

from axe import AXE

AXE_VERSION = "4.10.3"
PACKAGES = ("chromium", "chromium-driver")


def main() -> int:
    missing = []
    if not (which("chromium") and which("chromedriver")) and not install_chromium():
        missing.append(f"chromium: install {' and '.join(PACKAGES)} of your system")
    if not AXE.exists() and not fetch_axe():
        missing.append("axe-core: its tests will skip")
    for line in missing:
        print(f"== there is no {line}", file=sys.stderr)
    return 1 if which("chromium") is None else 0


def install_chromium() -> bool:
    if which("apt-get") is None or os.geteuid() != 0:
        return False
    print(f"== apt-get install {' '.join(PACKAGES)}", flush=True)
    commands = (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES])
    return all(subprocess.run(command, check=False).returncode == 0 for command in commands)


def fetch_axe() -> bool:
    """From the npm registry, by npm."""
    if which("npm") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(["npm", "pack", "--silent", f"axe-core@{AXE_VERSION}"], cwd=folder, check=False)
        archives = list(Path(folder).glob("*.tgz"))
        if packed.returncode or not archives:
            return False
        with tarfile.open(archives[0]) as archive:
            script = archive.extractfile("package/axe.min.js")
            assert script is not None, "the package has it"
            AXE.parent.mkdir(parents=True, exist_ok=True)
            AXE.write_bytes(script.read())
    return True


if __name__ == "__main__":
    sys.exit(main())
