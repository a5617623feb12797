"""How models write tool calls. The chat template tells which way its model has learned.

A call is a JSON object with a name and arguments; formats differ in what stands around it.
"""

from __future__ import annotations

from typing import NamedTuple


class ToolFormat(NamedTuple):
    """`trigger` begins a call or, with `is_list`, a list of calls; "" where a text that begins with an object is one.
    `end` follows each call."""

    name: str
    trigger: str
    arguments: str
    """The key of the arguments."""
    before: str = ""
    """Between the trigger and the object."""
    end: str = ""
    separator: str = ""
    """Between two calls."""
    is_list: bool = False
    most_calls: int | None = None
    """Later calls are left out, for a client that takes one at a time; None for any number."""
    is_all: bool = False
    """The text is calls and nothing else: the beginning of one that is cut off is no text."""


HERMES = ToolFormat("hermes", "<tool_call>", "arguments", before="\n", end="\n</tool_call>", separator="\n")
MISTRAL = ToolFormat("mistral", "[TOOL_CALLS]", "arguments", is_list=True)
LLAMA3 = ToolFormat("llama3", "", "parameters", separator="; ")
FORMATS = {each.name: each for each in (HERMES, MISTRAL, LLAMA3)}


def format_of(template: str) -> ToolFormat | None:
    """The format that a chat template writes earlier calls in; None where it has no place for tools."""
    if "tools" not in template:
        return None
    if MISTRAL.trigger in template:
        return MISTRAL
    if HERMES.trigger in template:
        return HERMES
    return LLAMA3 if '"parameters"' in template or "python_tag" in template else HERMES
