"""`specserve plugins options`: the options of the named plugins, or of all, from the Structs that they return."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from specserve.plugins.enabling import find
from specserve.plugins.load import import_plugin
from specserve.plugins.registration import options_type, registered
from specserve_workbench.commands.plugins.json_output import print_json
from specserve_workbench.commands.plugins.option_rows import option_rows

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from specserve.declare import PluginDeclaration
    from specserve_workbench.commands.plugins.option_rows import OptionRow

WIDTH, INDENT = 110, 8


def list_options(args: Namespace, installed: Mapping[str, PluginDeclaration]) -> int:
    """Plugins are imported, as start-up does. Raises PluginError for one that cannot be."""
    declarations = [find(name, installed) for name in args.names] or [*installed.values()]
    rows = {declaration.name: rows_of(declaration) for declaration in declarations}
    if args.json:
        print_json({name: [row._asdict() for row in found] for name, found in rows.items()})
    else:
        print("\n\n".join(text_of(name, found) for name, found in rows.items()))
    return 0


def rows_of(declaration: PluginDeclaration) -> list[OptionRow]:
    manager = registered(declaration.name, import_plugin(declaration))
    kind = options_type(declaration.name, manager)
    return [] if kind is None else option_rows(kind)


def text_of(plugin: str, rows: list[OptionRow]) -> str:
    if not rows:
        return f"{plugin} has no options."
    lines = []
    for row in rows:
        lines.append(f"--set {plugin}.{row.name}=...  ({row.allowed}; default: {row.default})")
        lines += textwrap.wrap(row.meaning, WIDTH, initial_indent=" " * INDENT, subsequent_indent=" " * INDENT)
    return "\n".join(lines)
