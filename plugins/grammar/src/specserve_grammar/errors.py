"""The reasons for which a grammar is refused, and an answer not validated."""

from __future__ import annotations

from typing import NoReturn

from specserve.api import RequestError

MAX_REASON = 400
LENIENT = "a server started with --set grammar.unsupported=validate serves it and says whether the answer keeps it"


class ValidationError(Exception):
    """A value could not be validated; the text says why."""


def refuse(param: str, reason: str) -> NoReturn:
    """Raises RequestError: the client's request is wrong."""
    reason = " ".join(reason.split())
    shown = reason if len(reason) <= MAX_REASON else f"{reason[: MAX_REASON - 1]}…"
    raise RequestError(f"{param}: {shown.rstrip('.')}.", param=param)
