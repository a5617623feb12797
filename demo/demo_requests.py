"""The requests of the demo: one whose text repeats its prompt and one whose text hardly repeats anything.

Prompts for the demo model, which writes Python, end within a line: after a line break of its own the model would have
to begin in the middle of a token. Those for an instruct model are turns in ChatML.
"""

from __future__ import annotations

from typing import Any, NamedTuple

FILE = '''class Vector:
    """A point of the plane, or the way to it."""

    def __init__(self, x, y):
        self.x = x
        self.y = y

    def __add__(self, other):
        if not isinstance(other, Vector):
            return NotImplemented
        return Vector(self.x + other.x, self.y + other.y)

    def __sub__(self, other):
        if not isinstance(other, Vector):
            return NotImplemented
        return Vector(self.x - other.x, self.y - other.y)

    def __eq__(self, other):
        if not isinstance(other, Vector):
            return NotImplemented
        return self.x == other.x and self.y == other.y

    def __repr__(self):
        return "Vector(%r, %r)" % (self.x, self.y)
'''
NEW = '''import os
import re


def read_settings(path, encoding="utf-8"):
    """Read KEY=VALUE lines from a file and return them as a dictionary.

    Blank lines and lines that begin with "#" are skipped.
    """
    settings = {}
    with open(path, encoding=encoding) as file:
        for number, line in enumerate(file, 1):
            line = line.strip()'''
SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"


class Case(NamedTuple):
    """A prompt, what it shows, and fields of its request."""

    title: str
    prompt: str
    fields: dict[str, Any]

    def body(self, *, speculate: bool) -> dict[str, Any]:
        """Requests with and without speculation share neither cached prefixes nor drafts."""
        return {
            "prompt": self.prompt,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "speculation": {"enabled": speculate},
            "cache_salt": f"{self.title}, {'drafted' if speculate else 'plain'}",
            **self.fields,
        }


def edited(file: str) -> str:
    """The file, and the beginning of a copy in which the class has another name."""
    copy = file.replace("Vector", "Point")
    return f"{file}\n\n{copy[: copy.index('        return Point')].rstrip()}"


def asked(question: str) -> str:
    """The prompt of a chat with one question."""
    return f"{SYSTEM}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


WARM_UP = Case("warm-up", "import", {"max_tokens": 8})
"""Whatever comes first pays for what a process does once."""
CODE = (
    Case(
        "a file and the beginning of an edited copy, temperature 0.6",
        edited(FILE),
        {"max_tokens": 160, "temperature": 0.6, "seed": 4},
    ),
    Case(
        "a function that repeats little, temperature 1",
        NEW,
        {"max_tokens": 120, "temperature": 1.0, "seed": 7},
    ),
)
CHAT = (
    Case(
        "a class, and the same with another name asked for, greedy",
        asked(
            f"Rename the class Vector to Point in this Python file and print the whole file:\n\n```python\n{FILE}```"
        ),
        {"max_tokens": 160, "temperature": 0.0, "ignore_eos": False},
    ),
    Case(
        "a question, temperature 0.7",
        asked("Explain in a few sentences why the sky is blue."),
        {"max_tokens": 120, "temperature": 0.7, "seed": 7, "ignore_eos": False},
    ),
)
CASES = {"code": CODE, "chat": CHAT}
"""By what the model was trained for."""
