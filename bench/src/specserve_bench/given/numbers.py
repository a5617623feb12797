"""Numbers on a command line."""

from __future__ import annotations

from argparse import ArgumentTypeError


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"must be a whole number above 0; got {text}")
    return int(text)


def not_negative(text: str) -> int:
    if not text.isdecimal():
        raise ArgumentTypeError(f"must be a whole number from 0 on; got {text}")
    return int(text)


def above_zero(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"must be a number above 0; got {text}")
    return number
