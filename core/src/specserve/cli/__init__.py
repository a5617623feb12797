"""The command line: the commands of whatever is installed.

Owns the parser, the exit codes and how errors are printed. Commands import heavy modules only when they run, so that
--help and `plugins` stay fast.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from typing import TYPE_CHECKING

from specserve import __version__
from specserve.announcements import announce_failure
from specserve.cli.commands import find_commands
from specserve.cli.parser import EXIT_CONFIG, Parser
from specserve.errors import ConfigError, RequestError, SpecserveError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EXIT_FAILED, EXIT_INTERRUPTED = 1, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. 0 is success, 1 a failure or a negative answer, 2 a configuration or a prompt that cannot be
    served."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # the locale may lack a character
    return run_command(build_parser().parse_args(argv))


def run_command(args: argparse.Namespace) -> int:
    run: Callable[[argparse.Namespace], int] = args.run
    try:
        return run(args)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except SpecserveError as error:
        announce_failure(" ".join(str(error).split()))
        return EXIT_CONFIG if isinstance(error, ConfigError | RequestError) else EXIT_FAILED


def build_parser() -> argparse.ArgumentParser:
    found = find_commands()
    examples = (f"  {line:<42}  {what}" for command in found for line, what in command.EXAMPLES)
    parser: argparse.ArgumentParser = Parser(
        prog="specserve",
        description="Serve a language model with speculative decoding. Plugins add the features.",
        epilog="\n".join(["examples:", *examples]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"specserve {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in found:
        command.register(commands)
    return parser
