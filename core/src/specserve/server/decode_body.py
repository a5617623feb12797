"""From the bytes of a request's body to its Struct, or an error that names the field."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from specserve.errors import RequestError
from specserve.limits import MAX_BODY_VALUES

B = TypeVar("B", bound=msgspec.Struct)
PATH = re.compile(r" - at `\$\.?(?:\[\.\.\.\])?(?P<path>[^`]*)`$")
"""Where msgspec found the error: the end of its message."""


def decode_body(data: bytes, body_type: type[B]) -> B:
    """Raises RequestError."""
    check_size(data)
    try:
        if not data.isascii():
            data.decode()  # msgspec does not check the fields that it skips
        return msgspec.json.decode(data, type=body_type)
    except msgspec.ValidationError as error:
        raise field_error(str(error)) from None
    except msgspec.DecodeError as error:
        raise RequestError(f"the body is not valid JSON: {error}.") from None
    except UnicodeDecodeError:
        raise RequestError("the body is not valid UTF-8.") from None
    except RecursionError:
        raise RequestError("the body nests too deeply.") from None


def check_size(data: bytes) -> None:
    """Values cost many times what other bytes cost, so that a body of nothing else would take seconds and memory."""
    if data.count(b'"') <= 2 * MAX_BODY_VALUES and data.count(b"[") + data.count(b"{") <= MAX_BODY_VALUES:
        return
    # in this order: a backslash that is escaped itself escapes no quote
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > 2 * MAX_BODY_VALUES:
        raise RequestError(f"the body has too many strings: at most {MAX_BODY_VALUES}, keys among them.")
    outside_strings = b"".join(plain.split(b'"')[::2])
    if outside_strings.count(b"[") + outside_strings.count(b"{") > MAX_BODY_VALUES:
        raise RequestError(f"the body has too many lists and objects: at most {MAX_BODY_VALUES}.")


def field_error(message: str) -> RequestError:
    match = PATH.search(message)
    path = match["path"] if match else ""
    where = f"{path}: " if path else ""
    return RequestError(f"{where}{PATH.sub('', message)}.", param=re.split(r"[.\[]", path)[0] if path else None)
