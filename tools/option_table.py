"""Writes the table of options into docs/operating.md, from the flags of `specserve serve` and their configuration.

`make pages` runs it. The table stands between two comments; the rest of the page is left as it is.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from specserve_server.cli.option_help import OptionHelp
from specserve_server.commands import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).resolve().parents[1] / "docs" / "operating.md"
BEGIN, END = "<!-- options: make pages writes them -->\n", "<!-- end of the options -->\n"


def main() -> None:
    PAGE.write_text(with_table(PAGE.read_text()))


def with_table(page: str) -> str:
    """The page, with the table of the options that there are now."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    assert found, f"the page has no {BEGIN.strip()} and {END.strip()}"
    return "".join([before, BEGIN, *lines(), END, after])


def lines() -> Iterator[str]:
    for title, actions in groups():
        yield f"\n**{title.capitalize()}**\n\n| flag | default | allowed | what it does |\n|---|---|---|---|\n"
        yield from map(row, actions)
    yield "\n"


def groups() -> Iterator[tuple[str, list[argparse.Action]]]:
    """The flags by subject, in the order of --help."""
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    serve.register(subparsers)
    for group in subparsers.choices["serve"]._action_groups:
        actions = [action for action in group._group_actions if isinstance(action.help, OptionHelp)]
        if actions:
            yield group.title or "", actions


def row(action: argparse.Action) -> str:
    text = action.help
    assert isinstance(text, OptionHelp)
    flag = action.option_strings[0] + (f" {action.metavar}" if action.metavar else "")
    return f"| `{flag}` | {cell(text.default)} | {cell(text.allowed)} | {cell(text.what)} |\n"


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    main()
