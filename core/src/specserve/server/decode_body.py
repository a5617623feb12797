"""From the bytes of a request's body to its Struct, or an error that names the field."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from specserve.errors import RequestError

B = TypeVar("B", bound=msgspec.Struct)
PATH = re.compile(r" - at `\$\.?(?:\[\.\.\.\])?(?P<path>[^`]*)`$")
"""Where msgspec found the error: the end of its message."""


def decode_body(data: bytes, body_type: type[B]) -> B:
    """Raises RequestError."""
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


def field_error(message: str) -> RequestError:
    match = PATH.search(message)
    path = match["path"] if match else ""
    where = f"{path}: " if path else ""
    return RequestError(f"{where}{PATH.sub('', message)}.", param=re.split(r"[.\[]", path)[0] if path else None)
