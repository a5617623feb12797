"""The command `specserve`, and `python -m specserve`: the command line, and the end of its process."""

from __future__ import annotations

import sys

from specserve import cli
from specserve.loading_thread import exit_at_once, is_loading


def main() -> int:
    """What the command exits with."""
    code = cli.main()
    if is_loading():
        exit_at_once(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
