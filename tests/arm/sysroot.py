"""A Debian for aarch64 in a folder: libc, libstdc++ and Python with its headers.

apt resolves and downloads, with lists and a state of its own below build/arm, so that the machine's stay as they are.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from made import once
from places import BUILD, SYSROOT
from tools import PrepareError

PACKAGES = ("python3", "libpython3-dev", "libstdc++6", "libgomp1")
APT = BUILD / "apt"
RELEASE = Path("/etc/os-release")


def make() -> None:
    once(SYSROOT, [PACKAGES, RELEASE.read_text()], fetch)


def fetch() -> None:
    print("== fetching Python for aarch64 (60 MB), by apt", flush=True)
    for folder in ("lists/partial", "cache/archives/partial"):
        (APT / folder).mkdir(parents=True, exist_ok=True)
    (APT / "status").touch()
    apt("update", "-qq")
    apt("install", "-qq", "-y", "--no-install-recommends", "--download-only", *PACKAGES)
    packages = sorted((APT / "cache" / "archives").glob("*.deb"))
    print(f"== unpacking {len(packages)} packages into {SYSROOT}", flush=True)
    for package in packages:
        subprocess.run(["dpkg", "-x", str(package), str(SYSROOT)], check=True)
    link_lib(SYSROOT)


def link_lib(root: Path) -> None:
    """Programs ask for /lib/ld-linux-aarch64.so.1. Since Debian 13 packages have it below /usr/lib alone, and the link
    from /lib is made by an installation, not by unpacking."""
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")


def apt(*arguments: str) -> None:
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "",
        "Dir::State": f"{APT}/",
        "Dir::State::lists": f"{APT}/lists/",
        "Dir::State::status": f"{APT}/status",
        "Dir::Cache": f"{APT}/cache/",
    }
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    run = subprocess.run(["apt-get", *options, *arguments], capture_output=True, text=True, check=False)
    if run.returncode:
        said = (run.stdout + run.stderr).strip()
        raise PrepareError(f"apt-get could not fetch packages for arm64:\n{said}")
