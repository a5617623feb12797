"""The demo's colours: each accepted draft token in that of its drafter, prompts dim.

Knows neither the HTTP API nor the server.
"""

from __future__ import annotations

import os
import sys
from itertools import cycle
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

GREEN, CYAN, MAGENTA, YELLOW, BLUE = (f"\x1b[{code}m" for code in (32, 36, 35, 33, 34))
DIM, RESET = "\x1b[2m", "\x1b[0m"


class Painter:
    """Prints the text of a server with these drafters. What no drafter guessed keeps the terminal's colour."""

    def __init__(self, drafters: Iterable[str]) -> None:
        self.colours = dict(zip(drafters, cycle((GREEN, CYAN, MAGENTA, YELLOW, BLUE)), strict=False))

    def legend(self) -> str:
        """The drafters, each in its colour."""
        return ", ".join(f"{colour}{name}{RESET}" for name, colour in self.colours.items())

    def show(self, text: str, drafter: str | None) -> None:
        show(text, self.colours.get(drafter or "", ""))


def wants_colour() -> bool:
    """As no-color.org and force-color.org say; otherwise only a terminal gets colours."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def show(text: str, colour: str) -> None:
    print(f"{colour}{text}{RESET}" if colour and wants_colour() else text, end="", flush=True)


def show_prompt(text: str) -> None:
    show(text, DIM)
