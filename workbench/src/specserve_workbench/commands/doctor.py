"""`specserve doctor`: whether this machine and this installation can serve well. Owns what is printed.

The command line is the server's, and the configuration that is examined is read as `serve` reads it.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections import Counter
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import msgspec

from specserve import __version__

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction
    from collections.abc import Iterable

    from specserve_workbench.doctor.rows import Section, Status

EXAMPLES = (("specserve doctor", "can this machine and this installation serve well?"),)
WIDEST, NARROWEST = 120, 60
DESCRIPTION = """\
Say whether this machine and this installation can serve well, and generate a few texts with and without drafts,
whose tokens must be the same. The exit code is 1 where a check has failed; warnings are no failures.
"""


def register(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser("doctor", help="check this machine and installation", description=DESCRIPTION)
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="a directory, a known name or a hub id; default: demo"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--no-self-test", action="store_true", help="do not generate")
    parser.add_argument("--host", help="where `serve` would listen; default: 127.0.0.1")
    parser.add_argument("--port", type=int, help="default: 8000")
    parser.add_argument("--chat-template", metavar="FILE", help="as of `serve`; default: the tokenizer's")
    from specserve_server.cli.flags import add_engine_flags  # who registers a command has it

    add_engine_flags(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    from specserve_server.commands.layers import load_configuration
    from specserve_workbench.doctor.case import Case  # the rest of specserve: not for --help
    from specserve_workbench.doctor.examine import SECTIONS, SELF_TEST, examine

    sections = examine(Case(*load_configuration(args)), SECTIONS if args.no_self_test else {**SECTIONS, **SELF_TEST})
    found = quietly(sections) if args.json else list(printed(sections))
    counts = Counter(row.status for section in found for row in section.rows)
    if args.json:
        print_json(found, counts)
    else:
        print(summary(counts))
    return 1 if counts["failed"] else 0


def quietly(sections: Iterable[Section]) -> list[Section]:
    """Standard output is for JSON alone: what plugins print goes to standard error."""
    with redirect_stdout(sys.stderr):
        return list(sections)


def printed(sections: Iterable[Section]) -> Iterable[Section]:
    """Prints each as soon as it is found."""
    width = min(max(shutil.get_terminal_size((WIDEST, 0)).columns, NARROWEST), WIDEST)
    for section in sections:
        print(section_text(section, width), flush=True)
        yield section


def section_text(section: Section, width: int) -> str:
    names = max((len(row.check) for row in section.rows), default=0)
    lines = [section.name]
    for row in section.rows:
        first = f"  {row.status:<7}  {row.check:<{names}}  "
        lines += wrapped(row.found, first, width)
        if row.advice:
            lines += wrapped(row.advice, " " * len(first) + "-> ", width)
    return "\n".join([*lines, ""])


def wrapped(text: str, first: str, width: int) -> list[str]:
    """Paths and names stay whole."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def summary(counts: Counter[Status]) -> str:
    verdict = "something has failed" if counts["failed"] else "ready to serve"
    return f"{counts['failed']} failed, warnings: {counts['warning']}, notes: {counts['note']}; {verdict}."


def print_json(sections: list[Section], counts: Counter[Status]) -> None:
    report = {
        "specserve": __version__,
        "ok": not counts["failed"],
        "counts": {status: counts[status] for status in ("ok", "note", "warning", "failed")},
        "sections": msgspec.to_builtins(sections),
    }
    json.dump(report, sys.stdout, indent=2)
    print()
