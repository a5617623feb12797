"""`specserve plugins new`: the files of a new plugin."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from specserve_workbench.scaffold.write_plugin import KINDS, words_for, write_plugin

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

    from specserve.declare import PluginDeclaration

DEFAULT = "drafter"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="what --plugin will take, such as my_drafter")
    kinds = parser.add_mutually_exclusive_group()
    for kind, described in KINDS.items():
        default = " (default)" if kind == DEFAULT else ""
        text = f"{described.feature}: {described.sentence}{default}"
        kinds.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, help=text)
    parser.add_argument("--into", type=Path, default=Path(), metavar="DIR", help="default: the working directory")
    parser.set_defaults(kind=DEFAULT)


def new_plugin(args: Namespace, installed: Mapping[str, PluginDeclaration]) -> int:
    written = write_plugin(args.name, args.kind, args.into)
    folder = args.into / words_for(args.name, KINDS[args.kind])["dist"]
    print(f"{folder}:")
    for path in written:
        print(f"  {path.relative_to(folder)}")
    taken = installed.get(args.name)
    if taken is not None:
        print(f"{taken.dist}, which is installed, has a plugin {args.name}, too: only one of them can be.")
    print(f"next: cd {os.fspath(folder)} && pip install --group dev -e . && pytest")
    return 0
