"""`specserve plugins`: what is installed, what can be enabled together, and why.

Reads declarations only: no plugin is imported but its `.compat` module, and neither torch nor the server. Only
`options` and `check --load` do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.config import DEVICES
from specserve.plugins import discovery
from specserve_workbench.commands.plugins import new_plugin
from specserve_workbench.commands.plugins.check_plugins import check_plugins
from specserve_workbench.commands.plugins.explain_pair import explain_pair
from specserve_workbench.commands.plugins.list_options import list_options
from specserve_workbench.commands.plugins.list_plugins import list_plugins
from specserve_workbench.commands.plugins.load_plugins import load_plugins
from specserve_workbench.commands.plugins.matrix import show_matrix

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction
    from collections.abc import Callable, Mapping

    from specserve.declare import PluginDeclaration

    Command = Callable[[Namespace, Mapping[str, PluginDeclaration]], int]

EXAMPLES = (
    ("specserve plugins list", "what is installed"),
    ("specserve plugins explain ngram lora", "whether two plugins work together, and who declares it"),
)
GRAPH_MODES = ("none", "piecewise", "full")


def register(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "plugins",
        help="list plugins, and tell which work together",
        description="Reads what plugins declare, without importing them.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    list_parser = commands.add_parser("list", help="installed plugins and their features")
    list_parser.set_defaults(run=run, command=list_plugins)
    options_parser = commands.add_parser("options", help="the options of these plugins, or of all, with their ranges")
    options_parser.add_argument("names", nargs="*", metavar="NAME")
    options_parser.set_defaults(run=run, command=list_options)
    check_parser = commands.add_parser(
        "check", help="whether start-up would accept these plugins; without names, every installed pair"
    )
    check_parser.add_argument("names", nargs="*", metavar="NAME")
    check_parser.add_argument(
        "--load", action="store_true", help="load them and serve a few requests, as `serve` would"
    )
    check_parser.add_argument("--model", help="with --load: a model, in place of a small random one")
    check_parser.set_defaults(run=run, command=check)
    explain_parser = commands.add_parser(
        "explain", help="whether two plugins, or a plugin and a feature, work together, and why"
    )
    explain_parser.add_argument("left", metavar="A", help="a plugin or a feature token")
    explain_parser.add_argument("right", metavar="B", help="a plugin or a feature token")
    explain_parser.set_defaults(run=run, command=explain_pair)
    new_parser = commands.add_parser("new", help="write a new plugin, with declarations and tests")
    new_plugin.add_arguments(new_parser)
    new_parser.set_defaults(run=run, command=new_plugin.new_plugin)
    matrix_parser = commands.add_parser("matrix", help="every installed plugin against every other")
    pages = matrix_parser.add_mutually_exclusive_group()
    pages.add_argument("--markdown", action="store_true", help="a page with the reasons")
    pages.add_argument("--html", action="store_true", help="the same, for a browser")
    matrix_parser.add_argument(
        "--proofs", metavar="FILE", help="what `pytest --specserve-plugin NAME --specserve-report FILE` found"
    )
    matrix_parser.set_defaults(run=run, command=show_matrix)
    for command in (check_parser, explain_parser, matrix_parser):
        command.add_argument("--device", choices=DEVICES, default="cpu", help="default: cpu")
        command.add_argument("--graphs", choices=GRAPH_MODES, default="none", help="default: none")
        command.add_argument("--set", action="append", default=[], metavar="NAME.KEY=VALUE", help="an option")
    for command in (list_parser, options_parser, check_parser, explain_parser, matrix_parser):
        command.add_argument("--json", action="store_true", help="print JSON")


def check(args: Namespace, installed: Mapping[str, PluginDeclaration]) -> int:
    return (load_plugins if args.load else check_plugins)(args, installed)


def run(args: Namespace) -> int:
    command: Command = args.command
    return command(args, discovery.discover())
