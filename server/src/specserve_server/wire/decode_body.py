"""From the bytes of a request's body to its Struct, or an error that names the field."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from specserve.errors import RequestError
from specserve_checks.json_syntax import explain_json_error
from specserve_checks.wrong_values import UNKNOWN_VALUE, WrongValue, find_wrong_value
from specserve_server.limits import MAX_BODY_DEPTH, MAX_BODY_VALUES
from specserve_server.wire.json_depth import field_of_depth

B = TypeVar("B", bound=msgspec.Struct)
TOP_FIELD = re.compile(r"at `(?:key` in `)?\$\.(?P<name>[^.\[`]+)")
"""In msgspec's message: the field of the body that is wrong, or that has the wrong one in it."""
FOREIGN = {
    b"\x1f\x8b": "it is compressed; send the header Content-Encoding: gzip with it",
    b"\x28\xb5\x2f\xfd": "it is compressed with zstd; send it with Content-Encoding: gzip, or as it is",
    b"\xff\xfe": "it is UTF-16; send UTF-8",
    b"\xfe\xff": "it is UTF-16; send UTF-8",
}
"""What data are that begin so."""
KINDS = {"[": "a list", '"': "a string", "t": "true", "f": "false", "n": "null"}
"""Of JSON values, by their first character; others are numbers."""


def decode_body(data: bytes, body_type: type[B]) -> B:
    """Raises RequestError."""
    check_size(data)
    if not data.strip():
        raise RequestError(f"the body is empty; send a JSON object, such as {example(body_type)}.")
    try:
        if not data.isascii():
            data.decode()  # msgspec does not check the fields that it skips
        return msgspec.json.decode(data, type=body_type)
    except msgspec.ValidationError as error:
        raise field_error(error, data, body_type) from None
    except msgspec.DecodeError as error:
        raise RequestError(f"the body is not valid JSON: {explain_json_error(data, error)}.") from None
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not valid UTF-8: {not_utf8(data, error)}.") from None
    except RecursionError:
        raise depth_error(data) from None


def check_size(data: bytes) -> None:
    """Values cost many times what other bytes cost, so that a body of nothing else would take seconds and memory."""
    if data.count(b'"') <= 2 * MAX_BODY_VALUES and data.count(b"[") + data.count(b"{") <= MAX_BODY_VALUES:
        return
    # in this order: a backslash that is escaped itself escapes no quote
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"")
    num_strings = plain.count(b'"') // 2
    if num_strings > MAX_BODY_VALUES:
        raise too_many("strings, keys among them", num_strings)
    outside_strings = b"".join(plain.split(b'"')[::2])
    num_objects = outside_strings.count(b"[") + outside_strings.count(b"{")
    if num_objects > MAX_BODY_VALUES:
        raise too_many("lists and objects", num_objects)


def too_many(what: str, count: int) -> RequestError:
    advice = "send less at once, and prompts as texts or token ids"
    return RequestError(f"the body has too many {what}: at most {MAX_BODY_VALUES} are read; got {count}; {advice}.")


def depth_error(data: bytes) -> RequestError:
    name = field_of_depth(data, MAX_BODY_DEPTH) or None
    where = "the body" if name is None else name
    text = f"at most {MAX_BODY_DEPTH} lists and objects within each other are read"
    return RequestError(f"{where}: it nests too deeply; {text}.", param=name)


def field_error(error: msgspec.ValidationError, data: bytes, body_type: type[msgspec.Struct]) -> RequestError:
    """Of what is wrong, only the field of the body is decoded again."""
    found = TOP_FIELD.search(str(error))
    if found is None:
        return no_object_error(data, body_type) if not is_object(data) else of_wrong_value(error, {}, body_type)
    name = found["name"]
    return of_wrong_value(error, {name: field_value(data, name)}, body_type)


def of_wrong_value(error: msgspec.ValidationError, value: object, body_type: type[msgspec.Struct]) -> RequestError:
    wrong = find_wrong_value(error, value, body_type)
    return RequestError(str(wrong), param=top_field(wrong))


def top_field(wrong: WrongValue) -> str | None:
    return re.split(r"[.\[]", wrong.path)[0] or None


def field_value(data: bytes, name: str) -> object:
    try:
        return msgspec.json.decode(msgspec.json.decode(data, type=dict[str, msgspec.Raw])[name])
    except (msgspec.DecodeError, RecursionError):  # a number that is out of range, or what nests too deeply
        return UNKNOWN_VALUE


def is_object(data: bytes) -> bool:
    return data.lstrip().startswith(b"{")


def no_object_error(data: bytes, body_type: type[msgspec.Struct]) -> RequestError:
    kind = KINDS.get(data.lstrip()[:1].decode(), "a number")
    return RequestError(f"the body must be a JSON object, such as {example(body_type)}; got {kind}.")


def example(body_type: type[msgspec.Struct]) -> str:
    names = subjects_of(body_type) or body_type.__struct_fields__
    return f'{{"{names[0]}": ...}}'


def subjects_of(body_type: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields that a body is about, of which it needs one."""
    return tuple(name for name in ("messages", "input", "prompt", "tokens") if name in body_type.__struct_fields__)


def not_utf8(data: bytes, error: UnicodeDecodeError) -> str:
    for start, meant in FOREIGN.items():
        if data.startswith(start):
            return meant
    return f"byte {data[error.start]:#04x} at offset {error.start}"
