"""`specserve completion SHELL`: a script that makes the shell complete commands, flags and their values.

The library shtab writes it from the parser. It is optional: whoever wants completion installs it.
"""

from __future__ import annotations

from argparse import RawDescriptionHelpFormatter, _SubParsersAction
from typing import TYPE_CHECKING

from specserve.errors import ConfigError
from specserve.plugins import discovery

if TYPE_CHECKING:
    from argparse import Action, ArgumentParser, Namespace
    from collections.abc import Iterator

SHELLS = ("bash", "zsh", "fish")
FILES = ("FILE", "FILE.toml", "PATH")
DIRECTORIES = ("DIR", "MODEL")
PLUGIN_FLAGS = ("--plugin", "--no-plugin")
EXAMPLES = ()
EPILOG = """\
Where the shell looks for it:
  specserve completion bash > ~/.local/share/bash-completion/completions/specserve
  specserve completion zsh > DIR/_specserve      with DIR in $fpath
  specserve completion fish > ~/.config/fish/completions/specserve.fish
"""


def register(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "completion",
        help="print a script for shell completion",
        description="Print a script for shell completion.",
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    from specserve_server.cli import build_parser  # which registers this command

    print(completion_script(build_parser(), args.shell))
    return 0


def completion_script(parser: ArgumentParser, shell: str) -> str:
    """Knows the plugins that are installed now. Raises ConfigError where shtab is missing."""
    try:
        import shtab
    except ImportError:
        raise ConfigError(
            "completion needs the package shtab. Run pip install 'specserve[completion]', then try again."
        ) from None
    names = sorted(discovery.discover())
    for action in all_actions(parser):
        if action.metavar in FILES:
            vars(action)["complete"] = shtab.FILE  # where shtab looks for it
        elif action.metavar in DIRECTORIES:
            vars(action)["complete"] = shtab.DIRECTORY
        elif action.option_strings and action.option_strings[0] in PLUGIN_FLAGS:
            action.choices = names
    script: str = shtab.complete(parser, shell)
    return script


def all_actions(parser: ArgumentParser) -> Iterator[Action]:
    """Of the commands, too."""
    for action in parser._actions:
        yield action
        if isinstance(action, _SubParsersAction):
            for command in action.choices.values():
                yield from all_actions(command)
