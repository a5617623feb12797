"""The parser of the command line: one line for each error, in words that say what is allowed and what was given.

argparse's own messages have Python's words, and print the usage: that of `serve` alone fills a screen.
"""

from __future__ import annotations

import argparse
import re
import sys
from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn

from specserve.command.exit_codes import EXIT_CONFIG

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_VALUE = re.compile(r"^argument (?P<flag>\S+): invalid (?P<type>int|float) value: (?P<got>.*)$", re.DOTALL)
NO_CHOICE = re.compile(r"^argument (?P<flag>\S+): invalid choice: (?P<got>.*?) \(choose from (?P<all>.*)\)$", re.DOTALL)
NO_ARGUMENT = re.compile(r"^argument (?P<flag>\S+): expected (?:one|at least one) argument$")
FLAG_WITH_VALUE = re.compile(r"^argument (?P<flag>\S+): ignored explicit argument (?P<got>.*)$", re.DOTALL)
TYPES = {"int": "an integer", "float": "a number"}
GIVEN_VALUE = re.compile(r"(--[\w-]+)=\S*")
"""A value may be a key."""
MAX_SHOWN = 100


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        text = in_our_words(message)
        end = "" if text.endswith("?") else ";"
        self.exit(EXIT_CONFIG, f"specserve: error: {text}{end} see {self.prog} --help.\n")

    def parse_args(self, args: Sequence[str] | None = None, namespace: object = None) -> argparse.Namespace:  # type: ignore[override]
        """What no command knows is an error of its command."""
        given = sys.argv[1:] if args is None else list(args)
        parsed, rest = self.parse_known_args(given, namespace)
        if rest:
            command = command_of(self, given)
            command.error(unknown_argument(command, rest[0]))
        assert isinstance(parsed, argparse.Namespace)
        return parsed


def in_our_words(message: str) -> str:
    if match := NO_VALUE.match(message):
        return f"{match['flag']} must be {TYPES[match['type']]}; got {cut(match['got'])}"
    if match := NO_CHOICE.match(message):
        choices = ", ".join(choice.strip("'") for choice in match["all"].split(", "))
        return f"{match['flag']} must be one of {choices}; got {cut(match['got'])}"
    if match := NO_ARGUMENT.match(message):
        return f"{match['flag']} needs a value behind it"
    if match := FLAG_WITH_VALUE.match(message):
        return f"{match['flag']} takes no value; got {cut(match['got'])}"
    return GIVEN_VALUE.sub(r"\1=…", message.removeprefix("argument "))


def unknown_argument(command: argparse.ArgumentParser, got: str) -> str:
    if not got.startswith("-"):
        return f"{command.prog} does not take {cut(repr(got))}; quote what has blanks"
    flag = got.partition("=")[0]
    flags = [name for action in command._actions for name in action.option_strings]
    return f"{command.prog} has no option {cut(flag)}{did_you_mean(flag, flags)}"


def command_of(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command that the words name."""
    for word in words:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:
                return command_of(action.choices[word], words[words.index(word) + 1 :])
    return parser


def did_you_mean(got: str, allowed: Sequence[str]) -> str:
    nearest = get_close_matches(got, allowed, n=1)
    return f", did you mean {nearest[0]}?" if nearest else ""


def cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
