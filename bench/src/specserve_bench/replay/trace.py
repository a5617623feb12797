"""A recorded text, as token ids."""

from __future__ import annotations

from typing import NamedTuple


class Trace(NamedTuple):
    """A prompt and the output that a model is assumed to give."""

    name: str
    kind: str
    prompt: list[int]
    output: list[int]
