"""Flags that `serve` and `generate` share, and the layers of configuration under them.

Owns defaults <- TOML file <- flags. The file has the tables [engine], [server] and [plugins.NAME]; a flag
that is not given changes nothing. Imports nothing heavy.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from specserve.config import DEVICES, DTYPES, EngineConfig, ServerConfig, read_toml
from specserve.errors import ConfigError
from specserve.plugins.settings import merge, parse_settings

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

C = TypeVar("C", EngineConfig, ServerConfig)
NOT_FLAGS = ("plugins", "no_plugins", "plugin_options", "default_plugins", "allow_undeclared")
"""Fields of EngineConfig that lists and switches of the command line fill."""
SWITCHES = ("prefix_cache", "chunked_prefill")
CHOICES = {"dtype": DTYPES, "device": DEVICES, "graphs": ("none", "full", "piecewise")}
HELP = {
    "device": "where the model runs; default: cpu",
    "dtype": "arithmetic and storage of the weights; auto is the checkpoint's where the device has it",
    "threads": "CPU threads; default: the cores that this process may use",
    "max_num_seqs": "the most requests that run at once",
    "max_num_batched_tokens": "the budget of one step, in tokens",
    "max_model_len": "context length in tokens; default: the model's own, at most 32768",
    "max_waiting": "the most requests that wait; more are answered 429",
    "block_size": "tokens per KV block",
    "kv_memory": "bytes for the KV cache, such as 512M or 2G",
    "max_draft_tokens": "the widest draft of one request",
    "attention": "attention backend, or auto",
    "graphs": "which graphs to capture",
    "draft_fault_limit": "faulty steps in a row after which a drafter is switched off",
    "fault_limit": "faulty calls in a row after which another part of a plugin is switched off",
    "prefix_cache": "reuse the KV of equal prefixes",
    "chunked_prefill": "split long prompts over several steps",
}


class Configuration(NamedTuple):
    engine: EngineConfig
    server: ServerConfig


def add_engine_flags(parser: ArgumentParser) -> None:
    """One flag per field of EngineConfig, with its type; the model is a positional of the command."""
    group = parser.add_argument_group("engine")
    group.add_argument("--config", type=Path, metavar="FILE.toml", help="tables [engine], [server], [plugins.NAME]")
    defaults = EngineConfig()
    for name in EngineConfig.__struct_fields__:
        if name == "model" or name in NOT_FLAGS:
            continue
        if name in SWITCHES:
            group.add_argument(f"--no-{name.replace('_', '-')}", dest=name, action="store_false", default=None,
                               help=f"do not {HELP[name]}")  # fmt: skip
            continue
        kind = int if isinstance(getattr(defaults, name), int) or name in ("threads", "max_model_len") else str
        group.add_argument(
            f"--{name.replace('_', '-')}", dest=name, type=kind, choices=CHOICES.get(name), help=HELP.get(name)
        )
    plugins = parser.add_argument_group("plugins")
    plugins.add_argument("--plugin", action="append", default=[], metavar="NAME", help="enable an installed plugin")
    plugins.add_argument("--no-plugin", action="append", default=[], metavar="NAME", help="disable a plugin")
    plugins.add_argument("--no-default-plugins", action="store_true", help="enable only what --plugin names")
    plugins.add_argument("--set", action="append", default=[], metavar="NAME.KEY=VALUE", help="an option of a plugin")
    plugins.add_argument(
        "--allow-undeclared", action="store_true", help="start with pairs of plugins that nobody declared compatible"
    )


def load_configuration(args: Namespace, server_fields: tuple[str, ...] = ()) -> Configuration:
    """The layers as one. ConfigError says which layer is wrong."""
    file = read_toml(args.config) if args.config is not None else {}
    unknown = sorted(set(file) - {"engine", "server", "plugins"})
    if unknown:
        raise ConfigError(
            f"--config: unknown table [{unknown[0]}] in {args.config}; use [engine], [server], [plugins.NAME]."
        )
    engine = table(file, "engine")
    if "plugin_options" in engine:
        raise ConfigError("--config: write plugin options as [plugins.NAME], not engine.plugin_options.")
    flags = given(args, tuple(name for name in EngineConfig.__struct_fields__ if name not in NOT_FLAGS))
    values = {**engine, **flags}
    values["plugins"] = joined(engine.get("plugins", []), args.plugin)
    values["no_plugins"] = joined(engine.get("no_plugins", []), args.no_plugin)
    if args.no_default_plugins:
        values["default_plugins"] = False
    if args.allow_undeclared:
        values["allow_undeclared"] = True
    values["plugin_options"] = merge(table(file, "plugins"), parse_settings(args.set))
    server = {**table(file, "server"), **given(args, server_fields)}
    return Configuration(convert("engine", values, EngineConfig), convert("server", server, ServerConfig))


def table(file: Mapping[str, Any], name: str) -> dict[str, Any]:
    content = file.get(name, {})
    if not isinstance(content, dict):
        raise ConfigError(f"--config: {name} must be a table; write [{name}].")
    return content


def given(args: Namespace, names: tuple[str, ...]) -> dict[str, Any]:
    """Flags that were passed: argparse leaves None in the others."""
    return {name: value for name in names if (value := getattr(args, name, None)) is not None}


def joined(first: Any, second: list[str]) -> Any:
    """Names of both, each once; what is no list is left for `convert` to refuse."""
    return list(dict.fromkeys([*first, *second])) if isinstance(first, list) else first


def convert(name: str, values: Mapping[str, Any], kind: type[C]) -> C:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"[{name}] configuration: {error}.") from None


def report_progress(done: int, total: int) -> None:
    """One line on standard error that is overwritten; nothing where it is not a terminal."""
    import sys

    if sys.stderr.isatty():
        end = "\n" if done >= total else ""
        print(f"\rspecserve: loading {done}/{total}", end=end, file=sys.stderr, flush=True)
