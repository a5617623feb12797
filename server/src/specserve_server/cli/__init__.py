"""The command line: the commands of whatever is installed.

Owns the parser. Commands import heavy modules only when they run, so that --help and `plugins` stay fast.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from specserve import __version__
from specserve.command.exit_codes import run_command
from specserve_server.cli.commands import find_commands
from specserve_server.cli.parser import Parser

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; what it exits with."""
    return run_command(partial(parse_and_run, argv))


def parse_and_run(argv: Sequence[str] | None) -> int:
    args = build_parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = args.run
    return run(args)


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
