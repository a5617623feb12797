"""Flags that stand for a plugin and one of its options: `--kv-events E` is `--plugin kv-events --set
kv-events.endpoint=E`.

The engine knows none of these plugins. What `--set` says of the same option goes first.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, NamedTuple

from specserve.errors import ConfigError
from specserve.plugins.entry_points import PLUGINS
from specserve_server.cli.option_help import OptionHelp

if TYPE_CHECKING:
    from argparse import Namespace, _ArgumentGroup


class PluginFlag(NamedTuple):
    """`flag` is also the plugin's name, and the end of its distribution's."""

    flag: str
    option: str
    metavar: str
    what: str

    @property
    def destination(self) -> str:
        return f"plugin_flag_{self.flag.replace('-', '_')}"


PLUGIN_FLAGS = (
    PluginFlag("kv-events", "endpoint", "ENDPOINT", "publish what the prefix cache knows, such as at tcp://*:5557"),
    PluginFlag("tensor-parallel", "ranks", "N", "split the model among N processes, or devices, of this machine"),
)


def add_shorthand_flags(group: _ArgumentGroup) -> None:
    for flag in PLUGIN_FLAGS:
        what = f"{flag.what}: the plugin {flag.flag}"
        help = OptionHelp(what, default="off")
        group.add_argument(f"--{flag.flag}", dest=flag.destination, metavar=flag.metavar, help=help)


def written_out(args: Namespace) -> tuple[list[str], list[str]]:
    """The values of `--plugin` and of `--set` that the given flags stand for. Raises ConfigError where such a plugin is
    not installed."""
    given = [(flag, value) for flag in PLUGIN_FLAGS if (value := getattr(args, flag.destination, None)) is not None]
    for flag, _ in given:
        if not entry_points(group=PLUGINS, name=flag.flag):
            raise ConfigError(
                f"--{flag.flag} needs the plugin {flag.flag}, which is not installed. Run pip install "
                f"specserve-plugin-{flag.flag}, or leave the flag out."
            )
    return [flag.flag for flag, _ in given], [f"{flag.flag}.{flag.option}={value}" for flag, value in given]
