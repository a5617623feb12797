"""The command line: `specserve serve`, `generate`, `plugins`, `doctor` and `completion`.

Owns the parser, the exit codes and how errors are printed. Commands register themselves and import heavy modules only
when they run, so that --help and `plugins` stay fast.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from typing import TYPE_CHECKING

from specserve import __version__
from specserve.announcements import announce_failure
from specserve.cli import completion, doctor, generate, plugins, serve
from specserve.cli.parser import EXIT_CONFIG, Parser
from specserve.errors import ConfigError, RequestError, SpecserveError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EXIT_FAILED, EXIT_INTERRUPTED = 1, 130
EPILOG = """\
examples:
  specserve serve                             serve the demo model on http://127.0.0.1:8000
  specserve serve DIR --plugin ngram          serve a model with n-gram drafts
  specserve generate "Once upon a time"       one prompt, without a server
  specserve plugins list                      what is installed
  specserve plugins explain ngram lora        whether two plugins work together, and who declares it
  specserve doctor                            can this machine and this installation serve well?
"""


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
    parser: argparse.ArgumentParser = Parser(
        prog="specserve",
        description="Serve a language model with speculative decoding. Plugins add the features.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"specserve {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (serve, generate, plugins, doctor):
        command.register(commands)
    completion.register(commands, parser)
    return parser
