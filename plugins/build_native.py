"""Installs a native plugin, editable, and says what is compiled and how far it is. pip's own output would be pages.

Run: `python build_native.py ngram`, with the Python that it is built for; CMake arguments are pip's (CMAKE_ARGS). A
build that fails prints all of its output and has pip's exit code.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PLUGINS = Path(__file__).resolve().parent
PIP = ("-m", "pip", "--disable-pip-version-check", "install", "-v", "-e")
COMPILED = re.compile(r"\[\s*(?:(\d+)/(\d+)|(\d+)%)\]\s+(\w+) .*?([\w.+-]+?)(?:\.o)?$")
"""A step of ninja, `[3/20] Building CXX object a/b.dir/native/cache.cpp.o`, or of make, whose counts are per cent."""
SECONDS_BETWEEN_LINES = 5.0
BUILT = {"cpu": ", kernels for the instruction sets of this machine"}
"""What of it, where that is not all."""


class Step(NamedTuple):
    count: str
    """3 of 20, or 15 %."""
    does: str
    file: str

    def __str__(self) -> str:
        return f"{self.count}, {self.does.lower()} {self.file}"


def main(name: str) -> int:
    began = time.monotonic()
    show = Overwritten(name) if sys.stdout.isatty() else NowAndThen(name)
    print(f"== building the {name} plugin (C++{BUILT.get(name, '')}): fetching what builds it", flush=True)
    output: list[str] = []
    with subprocess.Popen(
        [sys.executable, *PIP, str(PLUGINS / name)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as pip:
        assert pip.stdout is not None
        for step in steps(kept(pip.stdout, output)):
            show(step, time.monotonic() - began)
        code = pip.wait()
    if code:
        print("".join(("\n", *output)))
        print(f"== the {name} plugin could not be built; the output above says why", file=sys.stderr, flush=True)
        return code
    print(f"{show.end}== built the {name} plugin in {time.monotonic() - began:.0f} s", flush=True)
    return 0


def kept(lines: Iterable[str], output: list[str]) -> Iterator[str]:
    """The lines, which are put into `output` too."""
    for line in lines:
        output.append(line)
        yield line


def steps(lines: Iterable[str]) -> Iterator[Step]:
    for line in lines:
        found = COMPILED.search(line.rstrip())
        if found is not None:
            done, total, per_cent, does, file = found.groups()
            yield Step(f"{done} of {total}" if total else f"{per_cent} %", does, file)


class Overwritten:
    """Every step, in one line of a terminal."""

    end = "\r\x1b[K"

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, step: Step, seconds: float) -> None:
        print(f"{self.end}{self.name}: {step}, {seconds:.0f} s", end="", flush=True)


class NowAndThen:
    """A line for the first step, and for one every few seconds."""

    end = ""

    def __init__(self, name: str) -> None:
        self.name, self.told = name, -SECONDS_BETWEEN_LINES

    def __call__(self, step: Step, seconds: float) -> None:
        if seconds - self.told >= SECONDS_BETWEEN_LINES:
            self.told = seconds
            print(f"{self.name}: {step}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
