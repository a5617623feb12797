"""The reasons for which a grammar is refused."""

from __future__ import annotations

from typing import NoReturn

from specserve.errors import RequestError

MAX_REASON = 400


def refuse(param: str, reason: str) -> NoReturn:
    """Raises RequestError: the client's request is wrong."""
    reason = " ".join(reason.split())
    shown = reason if len(reason) <= MAX_REASON else f"{reason[: MAX_REASON - 1]}…"
    raise RequestError(f"{param}: {shown.rstrip('.')}.", param=param)
