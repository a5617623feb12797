"""Source releases of public packages: pip downloads them once to build/replay/sdist.

Owns that cache and the reading of archives. No package is installed or imported.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

BUILD = Path(__file__).parents[2] / "build" / "replay"
TEXT_SUFFIXES = frozenset({".py", ".md", ".rst", ".txt"})


class SetupError(Exception):
    """A text or a drafter of the benchmark is missing; the message says what to do."""


@lru_cache(maxsize=4)
def read_release(name: str, version: str) -> Mapping[str, str]:
    """The UTF-8 text files of a source release, by path below its top folder, in order of path.

    Downloads it if it is not in the cache. SetupError if that fails.
    """
    texts: dict[str, str] = {}
    with tarfile.open(fetch(name, version, BUILD / "sdist")) as archive:
        for member in archive:
            path = member.name.partition("/")[2]
            if not member.isfile() or Path(path).suffix not in TEXT_SUFFIXES:
                continue
            file = archive.extractfile(member)
            assert file is not None, "a regular file has content"
            try:
                texts[path] = file.read().decode("utf-8").replace("\r\n", "\n")
            except UnicodeDecodeError:
                continue  # deliberately broken files of a package's own tests
    return dict(sorted(texts.items()))


def fetch(name: str, version: str, folder: Path, *, isolated: bool = True) -> Path:
    """The path of the source archive in `folder`; pip downloads it if it is not there.

    pip runs the package's build system for its metadata even to download it; `isolated` installs that build system.
    """
    found = find_archive(name, version, folder)
    if found is None:
        download(name, version, folder, isolated)
        found = find_archive(name, version, folder)
    if found is None:
        raise SetupError(
            f"pip downloaded {name} {version}, but {folder} has no {name}-{version}.tar.gz. The release may "
            "have no tar.gz archive any more."
        )
    return found


def find_archive(name: str, version: str, folder: Path) -> Path | None:
    wanted = f"{name}-{version}.tar.gz".replace("-", "_").lower()
    return next((path for path in folder.glob("*.tar.gz") if path.name.replace("-", "_").lower() == wanted), None)


def download(name: str, version: str, folder: Path, isolated: bool) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    command += ["--no-binary", ":all:", "--dest", str(folder), f"{name}=={version}"]
    command += [] if isolated else ["--no-build-isolation"]
    folder.mkdir(parents=True, exist_ok=True)
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode and find_archive(name, version, folder) is None:
        errors = [line for line in run.stderr.splitlines() if line.startswith("ERROR")] or ["no message"]
        raise SetupError(
            f"the replay benchmark needs the source release {name} {version} and pip could not download it "
            f"({errors[-1]}). Run it once with a network, put {name}-{version}.tar.gz into {folder}, or pass "
            "--traces DIR with texts of your own."
        )
