"""Makes what `make test-arm` needs, once: qemu, a cross compiler, a Python for aarch64 with wheels, the plugins."""

from __future__ import annotations

import sys

import cross_build
import sysroot
import tools
import wheels
from places import python_version


def main() -> int:
    try:
        tools.require()
        sysroot.make()
        require_the_same_python()
        wheels.make()
        cross_build.make()
    except tools.PrepareError as error:
        print(f"== make test-arm cannot run: {error}", file=sys.stderr)
        return 1
    return 0


def require_the_same_python() -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if (there := python_version()) != here:
        raise tools.PrepareError(
            f"this system's Python for aarch64 is {there}, that of .venv {here}, and modules are built for one of "
            f"them: make .venv with python{there}"
        )


if __name__ == "__main__":
    sys.exit(main())
