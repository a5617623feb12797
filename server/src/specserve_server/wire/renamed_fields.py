"""Errors of a translated body, with the names that the client's own body has for the fields."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from specserve.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@contextmanager
def renamed_fields(names: Mapping[str, str]) -> Iterator[None]:
    """`names`: from the fields of a chat body to those of the client's."""
    try:
        yield
    except RequestError as error:
        old = error.param or ""
        if old not in names:
            raise
        # A path within the chat's field is no path of the client's body.
        path = re.match(rf"{re.escape(old)}(\[\d+\]|\.\w+)*", str(error))
        message = names[old] + str(error)[path.end() :] if path else str(error)
        raise RequestError(message, param=names[old], code=error.code) from None
