"""The layers of a server's configuration: defaults, then SPECSERVE_API_KEY, then the file of --config, then flags."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from specserve_server.cli.layers import begin_tracing, convert, engine_config, given_flags, read_file, table
from specserve_server.config import ServerConfig

if TYPE_CHECKING:
    from argparse import Namespace

    from specserve.config import EngineConfig
    from specserve_checks.wrong_values import WrongValue

SECRETS = ("api_key",)


class Configuration(NamedTuple):
    engine: EngineConfig
    server: ServerConfig


def load_configuration(args: Namespace) -> Configuration:
    """Raises ConfigError, which names the wrong layer. Tracing begins here, before plugins are loaded."""
    file = read_file(args)
    values = {**environment_key(), **table(file, "server"), **given_flags(args, ServerConfig.__struct_fields__)}
    configuration = Configuration(
        engine_config(args, file), convert("server", values, ServerConfig, describe=without_secret)
    )
    begin_tracing(args, configuration.server.log_format)
    return configuration


def environment_key() -> dict[str, object]:
    """The API key that shows neither in the process list nor in a file; the layers above replace it."""
    key = os.environ.get("SPECSERVE_API_KEY")
    return {} if key is None else {"api_key": key}


def without_secret(wrong: WrongValue) -> str:
    """A key is not printed."""
    if not wrong.path.startswith(SECRETS):
        return str(wrong)
    return str(wrong._replace(text=wrong.text.partition("; got ")[0]))
