"""Flags that stand for a plugin and one of its options: `--kv-events E` is `--plugin kv_events --set
kv_events.endpoint=E`. In a configuration file they are keys of [engine]: `kv_events = "E"`.

The engine knows none of these plugins. What `--set` says of the same option goes first, then the flag, then the file.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, NamedTuple

from specserve.errors import ConfigError
from specserve.plugins.entry_points import PLUGINS
from specserve_server.cli.option_help import OptionHelp

if TYPE_CHECKING:
    from argparse import Namespace, _ArgumentGroup
    from collections.abc import Mapping


class PluginFlag(NamedTuple):
    """`flag` is also the end of the distribution's name."""

    flag: str
    option: str
    metavar: str
    what: str

    @property
    def plugin(self) -> str:
        """Its name, which is the key in [engine], too."""
        return self.flag.replace("-", "_")


PLUGIN_FLAGS = (
    PluginFlag("kv-events", "endpoint", "ENDPOINT", "publish what the prefix cache knows, such as at tcp://*:5557"),
    PluginFlag("tensor-parallel", "ranks", "N", "split the model among N processes, or devices, of this machine"),
)


def add_shorthand_flags(group: _ArgumentGroup) -> None:
    for flag in PLUGIN_FLAGS:
        what = f"{flag.what}: the plugin {flag.plugin}"
        help = OptionHelp(what, default="off")
        group.add_argument(f"--{flag.flag}", dest=flag.plugin, metavar=flag.metavar, help=help)


class WrittenOut(NamedTuple):
    """Values of `--plugin` and of `--set`, and the keys of [engine] without those that stood for them."""

    plugins: list[str]
    settings: list[str]
    engine: dict[str, object]


def written_out(args: Namespace, engine: Mapping[str, object]) -> WrittenOut:
    """What the given flags, or the keys of the file's [engine], stand for. Raises ConfigError where such a plugin is
    not installed."""
    values = {**engine, **{name: value for name, value in vars(args).items() if value is not None}}
    given = {flag: values[flag.plugin] for flag in PLUGIN_FLAGS if flag.plugin in values}
    for flag in given:
        if not entry_points(group=PLUGINS, name=flag.plugin):
            raise ConfigError(
                f"--{flag.flag} needs the plugin {flag.plugin}, which is not installed. Run pip install "
                f"specserve-plugin-{flag.flag}, or leave the flag out."
            )
    keys = {flag.plugin for flag in PLUGIN_FLAGS}
    return WrittenOut(
        [flag.plugin for flag in given],
        [f"{flag.plugin}.{flag.option}={value}" for flag, value in given.items()],
        {name: value for name, value in engine.items() if name not in keys},
    )
