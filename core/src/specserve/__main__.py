"""`python -m specserve`: the command line."""

from __future__ import annotations

import sys

from specserve.cli import main

if __name__ == "__main__":
    sys.exit(main())
