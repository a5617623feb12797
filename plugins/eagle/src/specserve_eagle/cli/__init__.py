"""The command line: `specserve-eagle train` and `eval`.

Owns the parser, the exit codes and how errors are printed. Commands register themselves and import torch only when they
run, so that --help stays fast.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from specserve.api import SpecserveError
from specserve_eagle.cli import evaluate, train

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EXIT_FAILED, EXIT_CONFIG, EXIT_INTERRUPTED = 1, 2, 130
EPILOG = """\
examples:
  specserve-eagle train --target DIR --data 'src/**/*.py' --out HEAD --head eagle3 --minutes 60
  specserve-eagle eval --target DIR --head HEAD --data 'tests/**/*.py'
  specserve serve DIR --plugin eagle --set eagle.model=HEAD
"""


class Parser(argparse.ArgumentParser):
    """Prints errors in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_CONFIG, f"specserve-eagle: error: {message}; see {self.prog} --help.\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. 0 is success, 1 a failure, 2 bad options, data or models."""
    args = build_parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = args.run
    try:
        return run(args)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except SpecserveError as error:
        print(f"specserve-eagle: error: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_CONFIG


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="specserve-eagle",
        description="Train draft models for a target, and measure what they accept.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (train, evaluate):
        command.register(commands)
    return parser
