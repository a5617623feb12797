"""The command line of the core alone: `python -m specserve generate`. Every option of an engine is a --set.

The distribution `specserve` brings the full command line, with a flag for each.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from typing import TYPE_CHECKING, NoReturn

import msgspec

from specserve import __version__
from specserve.command.complete_prompt import (
    add_request_arguments,
    check_before_start,
    complete_prompt,
    model_and_prompt,
    print_stats,
)
from specserve.config import EngineConfig
from specserve.errors import ConfigError
from specserve.plugins.settings import merge, parse_settings
from specserve_checks.wrong_values import find_wrong_value

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

COMMAND = "generate"
SETTING = "engine.KEY=VALUE, a field of EngineConfig, or NAME.KEY=VALUE, an option of a plugin; may be repeated"


class Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see {self.prog} --help.")


def main(argv: Sequence[str]) -> int:
    """Raises ConfigError and other errors of the product."""
    if argv and argv[0] != COMMAND and not argv[0].startswith("-"):
        raise ConfigError(f"the command {argv[0]} needs the distribution specserve. Run pip install specserve.")
    args = make_parser().parse_args(argv)
    model, prompt = model_and_prompt(args)
    config = engine_config(model, args)
    check_before_start(config, args)
    asyncio.run(generate(config, prompt, args))
    return 0


def make_parser() -> Parser:
    parser = Parser(
        prog="python -m specserve",
        description="Complete one prompt and print it token by token.",
        epilog="pip install specserve brings the server and all other commands.",
    )
    parser.add_argument("--version", action="version", version=f"specserve {__version__}")
    parser.add_argument("command", choices=[COMMAND], metavar=COMMAND, help="the core alone has no other")
    add_request_arguments(parser)
    parser.add_argument("--seed", type=int, metavar="N", help="default: random")
    parser.add_argument("--plugin", action="append", default=[], metavar="NAME", help="enable it; may be repeated")
    parser.add_argument("--set", action="append", default=[], metavar="NAME.KEY=VALUE", help=SETTING)
    return parser


def engine_config(model: str | None, args: Namespace) -> EngineConfig:
    tables = parse_settings(args.set)
    engine = tables.pop("engine", {})
    table = merge({"plugins": args.plugin, "plugin_options": tables}, engine)
    if model is not None:
        table["model"] = model
    try:
        return msgspec.convert(table, EngineConfig, strict=False)  # the values of --set are text
    except msgspec.ValidationError as error:
        raise ConfigError(f"--set engine.{find_wrong_value(error, table, EngineConfig)}") from None


async def generate(config: EngineConfig, prompt: str, args: Namespace) -> None:
    from specserve.engine.async_engine import AsyncEngine  # torch, by way of the engine

    print_stats(await complete_prompt(await AsyncEngine.start(config), prompt, args))
