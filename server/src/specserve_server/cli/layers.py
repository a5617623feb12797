"""The layers of an engine's configuration: defaults, then the TOML file of --config, then flags.

The file has the tables [engine], [server] and [plugins.NAME]; a flag that is not given changes nothing. What [server]
holds, the server knows.
"""

from __future__ import annotations

import os
import tomllib
from typing import TYPE_CHECKING, TypeVar

from specserve.config import EngineConfig
from specserve.errors import ConfigError
from specserve.plugins.settings import merge, parse_settings
from specserve.tracing import start_tracing
from specserve_checks import wrong_values
from specserve_checks.type_words import shown
from specserve_server.cli.flags import ENGINE_FIELDS
from specserve_server.cli.plugin_flags import written_out

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import msgspec

    from specserve_checks.wrong_values import WrongValue

    C = TypeVar("C", bound=msgspec.Struct)

TABLES = ("engine", "server", "plugins")
ONCE_THE_ENGINES = ("chat_template",)
"""What is the server's may stand in [engine] still."""


def load_engine_config(args: Namespace) -> EngineConfig:
    """Raises ConfigError, which names the wrong layer. Tracing begins here, before plugins are loaded."""
    config = engine_config(args, read_file(args))
    begin_tracing(args)
    return config


def read_file(args: Namespace) -> dict[str, object]:
    """The tables of --config; none without it."""
    file = read_toml(args.config) if args.config is not None else {}
    unknown = sorted(set(file) - set(TABLES))
    if unknown:
        got = f"unknown table [{unknown[0]}]" if isinstance(file[unknown[0]], dict) else f"{unknown[0]} is in no table"
        raise ConfigError(f"--config: {got} in {args.config}; use [engine], [server], [plugins.NAME].")
    return with_own_tables(file)


def with_own_tables(file: Mapping[str, object]) -> dict[str, object]:
    """The file, with what was once the engine's in [server]. What is written in [server] goes first."""
    engine, server = table(file, "engine"), table(file, "server")
    moved = {name: engine[name] for name in ONCE_THE_ENGINES if name in engine}
    own = {name: value for name, value in engine.items() if name not in moved}
    return {**file, "engine": own, "server": {**moved, **server}}


def read_toml(path: Path) -> dict[str, object]:
    """Its errors name the file."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise ConfigError(f"--config: no file at {path}.") from None
    except OSError as error:
        raise ConfigError(f"--config: {path} is not readable: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config: {path} is not valid TOML: {error}.") from None


def engine_config(args: Namespace, file: Mapping[str, object]) -> EngineConfig:
    shorthands = written_out(args, table(file, "engine"))
    engine = {**shorthands.engine, **given_flags(args, ENGINE_FIELDS)}
    if "plugin_options" in engine:
        raise ConfigError("--config: write plugin options as [plugins.NAME], not engine.plugin_options.")
    engine["plugins"] = append_names(engine.get("plugins", []), [*args.plugin, *shorthands.plugins])
    engine["no_plugins"] = append_names(engine.get("no_plugins", []), args.no_plugin)
    if args.no_default_plugins:
        engine["default_plugins"] = False
    if args.allow_undeclared:
        engine["allow_undeclared"] = True
    engine["plugin_options"] = merge(plugin_tables(file), parse_settings([*shorthands.settings, *args.set]))
    return convert("engine", engine, EngineConfig)


def begin_tracing(args: Namespace, log_format: str = "text") -> None:
    """Trace the topics of --trace, or SPECSERVE_TRACE. `log_format`: the form of the lines without --trace-format."""
    topics = args.trace or os.environ.get("SPECSERVE_TRACE", "")
    start_tracing([topic for topic in topics.split(",") if topic], args.trace_format or log_format)


def table(file: Mapping[str, object], name: str) -> dict[str, object]:
    content = file.get(name, {})
    if not isinstance(content, dict):
        raise ConfigError(f"--config: {name} must be a table; write [{name}].")
    return content


def plugin_tables(file: Mapping[str, object]) -> dict[str, object]:
    tables = table(file, "plugins")
    for name, options in tables.items():
        if not isinstance(options, dict):
            raise ConfigError(
                f"--config: plugins.{name} must be a table; got {shown(options)}. Write [plugins.{name}]."
            )
    return tables


def given_flags(args: Namespace, names: Sequence[str]) -> dict[str, object]:
    """argparse leaves None where a flag is not given."""
    return {name: value for name in names if (value := getattr(args, name, None)) is not None}


def append_names(names: object, more: list[str]) -> object:
    """Each name once. A value that is not a list is left to `convert`, which refuses it."""
    return list(dict.fromkeys([*names, *more])) if isinstance(names, list) else names


def convert(
    name: str, values: Mapping[str, object], config_type: type[C], describe: Callable[[WrongValue], str] = str
) -> C:
    """`describe`: the words for a wrong value."""
    return wrong_values.convert(values, config_type, lambda wrong: ConfigError(f"[{name}] {describe(wrong)}"))
