"""The arguments of earlier calls, which clients send back as JSON text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.errors import RequestError
from specserve_checks.type_words import shown

if TYPE_CHECKING:
    from specserve_checks.json_types import JsonValue


INVALID = "INVALID_JSON"
"""The key of arguments that cannot be read, as the Messages API says that they be sent back."""


def readable_arguments(text: str) -> str:
    """Those that a model wrote: JSON as it is. Where that cannot be read, as when the answer was cut off or a number is
    too large, an object of the text."""
    try:
        msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return msgspec.json.encode({INVALID: text}).decode()
    return text


def decode_arguments(text: str | None, where: str, param: str) -> JsonValue:
    """An empty object where there are none. `where`: their path in the body. Raises RequestError."""
    advice = 'such as "{}", or leave out this call and its result'
    try:
        arguments: JsonValue = msgspec.json.decode(text or "{}")
    except msgspec.ValidationError:
        problem = f"has a number that is too large, in {shown(text)}; send others, {advice}"
        raise RequestError(f"{where}: {problem}.", param=param) from None
    except (msgspec.DecodeError, RecursionError):
        problem = f"must be JSON text; got {shown(text)}; send whole ones, {advice}"
        raise RequestError(f"{where}: {problem}.", param=param) from None
    return arguments
