"""Errors of a translated body, with the names that the client's own body has for the fields."""

from __future__ import annotations

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
        rest = str(error).removeprefix(old)
        message = names[old] + rest if rest != str(error) else str(error)
        raise RequestError(message, param=names[old], code=error.code) from None
