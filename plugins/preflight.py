"""What a machine lacks to build a native plugin, said in a sentence before the build's own pages of output.

Run: `python preflight.py cpu ngram`, with the Python that they are built for. Exit code 1 where something is missing.
CMake and ninja are no concern: scikit-build-core fetches them.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

COMPILERS = ("c++", "g++", "clang++")
"""Where CMake looks, unless CXX names one."""


def missing() -> str | None:
    names = [os.environ["CXX"]] if os.environ.get("CXX") else COMPILERS
    if not any(runs([*shlex.split(name), "--version"]) for name in names):
        how = "apt install g++, dnf install gcc-c++ or xcode-select --install"
        return f"there is no C++ compiler ({', '.join(names)}); {how} brings one"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        how = "apt install python3-dev or dnf install python3-devel"
        return f"Python's headers are not installed ({header}); {how} brings them"
    return None


def runs(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


if __name__ == "__main__":
    sentence = missing()
    if sentence is not None:
        names = " and ".join(sys.argv[1:])
        sys.exit(f"== no native plugin can be built ({names}): {sentence}.")
