"""Bodies of valid JSON that are made to cost time or memory: an answer in bounded time, and the log no traceback."""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING, Any

import pytest

from specserve.errors import RequestError
from specserve_server.bodies.requests import ChatBody, CompletionBody, TokenizeBody
from specserve_server.limits import MAX_BODY_VALUES
from specserve_server.wire.decode_body import decode_body
from specserve_server.wire.read_body import check_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from fake_engine import FakeEngine

MIB = 2**20
NUM_KEYS = 10**6
MAX_CPU_SECONDS = 1.5
"""Three times what the slowest takes on one core, for slow machines."""


def field(value: bytes, name: bytes = b"x") -> bytes:
    return b'{"prompt":"a","%b":%b}' % (name, value)


def keys(num: int, key: bytes = b'"k%d":1') -> bytes:
    return b"{" + b",".join(key % i for i in range(num)) + b"}"


def repeated(value: bytes, total: int = 16 * MIB - 100) -> bytes:
    return b"[" + value + (b"," + value) * (total // (len(value) + 1) - 1) + b"]"


HOSTILE: dict[str, tuple[Callable[[], bytes], bool]] = {
    "deep lists": (lambda: field(b"[" * 10**5 + b"]" * 10**5), False),
    "deep lists of 16 MiB": (lambda: field(b"[" * (8 * MIB - 99) + b"]" * (8 * MIB - 99)), False),
    "deep objects": (lambda: field(b'{"a":' * 10**5 + b"1" + b"}" * 10**5), False),
    "deep schema": (lambda: field(b"[" * 10**5 + b"]" * 10**5, b"guided_json"), False),
    "deep kwargs": (lambda: field(b"[" * 10**5 + b"]" * 10**5, b"chat_template_kwargs"), False),
    "keys": (lambda: keys(NUM_KEYS), False),
    "keys that end with a backslash": (lambda: keys(NUM_KEYS, b'"k%d\\\\":1'), False),
    "keys of a field": (lambda: field(keys(NUM_KEYS), b"logit_bias"), False),
    "keys below the limit": (lambda: field(keys(MAX_BODY_VALUES // 2)), True),
    "an integer that is ignored": (lambda: field(b"9" * 10**6), True),
    "an integer of 16 MiB": (lambda: field(b"9" * (16 * MIB - 99)), True),
    "an integer for a count": (lambda: field(b"9" * 10**6, b"n"), False),
    "an integer for a known field": (lambda: field(b"9" * 10**6, b"num_beams"), False),
    "digits of a fraction": (lambda: field(b"0." + b"9" * (16 * MIB - 99), b"temperature"), True),
    "an exponent": (lambda: field(b"1e999999999", b"temperature"), False),
    "NaN": (lambda: field(b"NaN"), False),
    "half of a surrogate pair": (lambda: b'{"prompt":"\\ud800"}', False),
    "half of one in an ignored field": (lambda: field(b'"\\udc00"'), False),
    "half of one as a key": (lambda: field(b'{"\\ud800":1}'), False),
    "lists of token ids": (lambda: b'{"prompt":%b}' % repeated(b"[1]"), False),
    "empty objects": (lambda: field(repeated(b"{}")), False),
    "texts": (lambda: b'{"prompt":%b}' % repeated(b'"a"'), False),
    "token ids": (lambda: b'{"prompt":%b}' % repeated(b"1"), True),
    "nulls": (lambda: b'{"prompt":%b}' % repeated(b"null"), False),
    "escaped quotes and brackets": (lambda: b'{"prompt":"%b"}' % (b'\\"[{' * (4 * MIB - 9)), True),
    "surrogate pairs": (lambda: b'{"prompt":"%b"}' % (b"\\ud83d\\ude42" * (16 * MIB // 12 - 9)), True),
    "blanks": (lambda: b'{"prompt":"a"%b}' % (b" " * (16 * MIB - 99)), True),
    "a key given many times": (lambda: b"{" + b",".join([b'"prompt":"a"'] * (MAX_BODY_VALUES // 2)) + b"}", True),
}  # fmt: skip
"""What makes the body, and whether it is served."""


def read(data: bytes, body_type: Any) -> str:
    try:
        decode_body(data, body_type)
        check_fields(data, body_type, strict=False)
    except RequestError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_body_is_read_or_refused_in_bounded_time(name: str) -> None:
    make, served = HOSTILE[name]
    data = make()
    assert len(data) <= 16 * MIB
    for body_type in (CompletionBody, TokenizeBody) if b"prompt" in data[:10] else (CompletionBody, ChatBody):
        begun = time.process_time()
        refused = read(data, body_type)
        assert time.process_time() - begun < MAX_CPU_SECONDS
        refused.encode()
        if body_type is CompletionBody:
            assert (refused == "") == served, refused


async def test_a_hostile_body_gets_a_400_and_the_log_nothing(
    client: Any, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    for name, (make, served) in HOSTILE.items():
        if not served:
            response = await client.post("/v1/completions", data=io.BytesIO(make()))
            body = await response.json()
            assert (response.status, body["error"]["type"]) == (400, "invalid_request_error"), name
    assert engine.submitted == []
    assert [record for record in caplog.records if record.levelname in ("ERROR", "WARNING")] == []


def test_text_of_quotes_and_brackets_is_no_structure() -> None:
    """Only what stands outside of strings counts, whatever the escapes say."""
    text = r"\\\"[{" * MAX_BODY_VALUES + r"\\"
    assert decode_body(b'{"prompt":"%b"}' % text.encode(), CompletionBody).prompt == r"\"[{" * MAX_BODY_VALUES + "\\"
