"""The schema of a tool's arguments, which comes as JSON text and reaches the chat template as an object."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.errors import RequestError
from specserve_checks.type_words import shown
from specserve_server.generation.structured_output import is_null

if TYPE_CHECKING:
    from specserve_checks.json_types import JsonObject


def decode_schema(schema: msgspec.Raw, where: str) -> JsonObject:
    """An empty object where there is none. `where`: its path in the body. Raises RequestError."""
    if is_null(schema):
        return {}
    try:
        found = msgspec.json.decode(schema)
    except msgspec.ValidationError:
        raise refusal(where, "has a number that is too large") from None
    except (msgspec.DecodeError, RecursionError):
        raise refusal(where, "cannot be read: it nests too deeply, or has half of a surrogate pair") from None
    if not isinstance(found, dict):
        example = '{"type": "object", "properties": {...}}'
        raise refusal(where, f"must be a JSON schema, such as {example}; got {shown(found)}")
    return found


def refusal(where: str, text: str) -> RequestError:
    return RequestError(f"{where}: {text}.", param="tools")
