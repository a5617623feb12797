"""Python, the platform, and the packages that specserve needs."""

from __future__ import annotations

import platform
import re
import sys
from contextlib import suppress
from importlib import metadata
from typing import TYPE_CHECKING

from specserve import __version__
from specserve_workbench.doctor.rows import Row, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from specserve_workbench.doctor.case import Case

REQUIREMENT = re.compile(r"([\w.-]+)\s*(?:>=\s*([\w.]+))?")


def interpreter_rows(case: Case) -> list[Row]:
    return rows_of(case, specserve, python, operating_system, packages)


def specserve(case: Case) -> Iterator[Row]:
    yield Row("specserve", "ok", __version__)


def python(case: Case) -> Iterator[Row]:
    yield Row("python", "ok", f"{platform.python_version()} ({platform.python_implementation()}), {sys.executable}")


def operating_system(case: Case) -> Iterator[Row]:
    found = f"{platform.system()} {platform.release()}, {platform.machine()}"
    library, version = platform.libc_ver()
    if platform.system() == "Darwin":
        advice = "nobody has run specserve on macOS yet: what is known is in docs/cpu.md"
        yield Row("operating system", "note", found, advice)
    elif platform.system() != "Linux":
        yield Row("operating system", "note", found, "specserve is developed and tested on Linux")
    elif library != "glibc":
        yield Row("operating system", "note", found, "without glibc freed memory goes back to the system in each step")
    else:
        yield Row("operating system", "ok", f"{found}, {library} {version}")


def packages(case: Case) -> Iterator[Row]:
    requirements = list(required_packages())
    problems = list(package_problems(requirements))
    for name, found in problems:
        yield Row("packages", "failed", f"{name}: {found}", f"run pip install --upgrade {name}")
    if not problems:
        yield Row("packages", "ok", f"all {len(requirements)} that specserve needs, of versions that it allows")


def required_packages() -> Iterator[str]:
    """By the engine, and by the server where it is installed; without those of extras."""
    yield from needs_of("specserve-core")
    with suppress(metadata.PackageNotFoundError):
        yield from needs_of("specserve")


def needs_of(distribution: str) -> Iterator[str]:
    return (text for text in metadata.requires(distribution) or () if "extra ==" not in text)


def package_problems(requirements: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The packages that are missing or older than what is required, with what was found."""
    for text in requirements:
        match = REQUIREMENT.match(text)
        assert match is not None, f"a requirement of specserve: {text}"
        name, least = match[1], match[2]
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield name, "not installed"
            continue
        if least is not None and release(version) < release(least):
            yield name, f"{version} is older than {least}"


def release(version: str) -> tuple[int, ...]:
    """`"2.13.0+cpu"` -> (2, 13, 0)."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, numbers[0].split("."))) if numbers else ()
