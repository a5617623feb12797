"""Source releases of public packages: fetched once by pip into build/replay/sdist, read from there.

Owns the cache and the way into an archive. Knows nothing about what the files are used for. Nothing of a
package is installed or imported.
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


class MaterialError(Exception):
    """The benchmark's material is missing or not what its table says; the message says what to do."""


@lru_cache(maxsize=4)
def read_release(name: str, version: str) -> Mapping[str, str]:
    """The UTF-8 text files of a source release, by path below its top folder, in order of path.

    Downloads it when it is not in the cache. MaterialError when it cannot.
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
    """The path of `name`'s source archive of that version in `folder`; pip downloads it when it is not there.

    pip asks the package's build system for metadata even to download it. Isolated, it fetches that build system first.
    """
    found = find_archive(name, version, folder)
    if found is None:
        download(name, version, folder, isolated)
        found = find_archive(name, version, folder)
    if found is None:
        raise MaterialError(
            f"pip downloaded {name} {version}, but no {name}-{version}.tar.gz lies in {folder}. Look at what is "
            "there; the release may have no tar.gz archive any more."
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
        raise MaterialError(
            f"the replay benchmark needs the source release {name} {version} and pip could not download it "
            f"({errors[-1]}). Run it once with a network, put {name}-{version}.tar.gz into {folder}, or pass "
            "--streams DIR with texts of your own."
        )
