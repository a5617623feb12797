"""CONFIG.toml: the tables of specserve's own configuration, read as the server reads them, and [ray]."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.config import EngineConfig
from specserve.errors import ConfigError
from specserve.plugins.settings import merge
from specserve_ray.config import Configuration, RayConfig
from specserve_server.cli.layers import convert, plugin_tables, read_toml, table, with_own_tables
from specserve_server.commands.layers import environment_key, without_secret
from specserve_server.config import ServerConfig

if TYPE_CHECKING:
    from pathlib import Path

TABLES = ("engine", "server", "plugins", "ray")


def read_configuration(path: Path) -> Configuration:
    """Raises ConfigError, which names the table."""
    file = read_toml(path)
    if unknown := sorted(set(file) - set(TABLES)):
        what = f"unknown table [{unknown[0]}]" if isinstance(file[unknown[0]], dict) else f"{unknown[0]} is in no table"
        raise ConfigError(f"{what} in {path}; use [engine], [server], [plugins.NAME], [ray].")
    file = with_own_tables(file)
    engine, server = table(file, "engine"), {**environment_key(), **table(file, "server")}
    if "plugin_options" in engine:
        raise ConfigError("write plugin options as [plugins.NAME], not engine.plugin_options.")
    return Configuration(
        engine=convert("engine", {**engine, "plugin_options": merge({}, plugin_tables(file))}, EngineConfig),
        server=convert("server", server, ServerConfig, describe=without_secret),
        ray=convert("ray", table(file, "ray"), RayConfig),
    )
