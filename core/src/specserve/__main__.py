"""The command `specserve`, and `python -m specserve`: whose command line it is, and the end of its process.

The core's own, unless an installed distribution brings a full one: the entry point of the group `specserve.main`.
"""

from __future__ import annotations

import sys
from importlib import metadata
from typing import TYPE_CHECKING

from specserve.command import generate
from specserve.command.exit_codes import run_command
from specserve.errors import ConfigError
from specserve.faults import FAULTS
from specserve.loading_thread import exit_at_once, is_loading
from specserve.plugins.error_messages import unusable_entry_point

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GROUP = "specserve.main"


def main() -> int:
    """What the command exits with."""
    code = run_command(lambda: find_main()(sys.argv[1:]))
    if is_loading():
        exit_at_once(code)
    return code


def find_main() -> Callable[[Sequence[str]], int]:
    """Raises ConfigError where the full one cannot be imported."""
    for point in metadata.entry_points(group=GROUP):
        try:
            full: Callable[[Sequence[str]], int] = point.load()
        except FAULTS as error:
            raise ConfigError(unusable_entry_point(point, "the command line", error)) from error
        return full
    return generate.main


if __name__ == "__main__":
    sys.exit(main())
