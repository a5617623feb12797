"""Bodies of every route as hypothesis strategies: valid ones, invalid ones, and malformed JSON.

A field's value is drawn as JSON text, so that a body can hold what Python's json would not write: NaN, 1e999, half a
surrogate pair, the same key twice. Knows the vocabulary and the context length of the toy model.
"""

from __future__ import annotations

import json
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import strategies as st
from live_server import ADAPTER, MAX_MODEL_LEN

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

VOCAB_SIZE = 320
COMPLETIONS, CHAT, TOKENIZE, DETOKENIZE = "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"
INT32, INT64 = 2**31 - 1, 2**63 - 1
MAX_SHOWN = 2000
LONG = 600
"""max_tokens of a request whose client disconnects: more than the context holds."""


class FuzzCase(NamedTuple):
    """`valid`: it must be served. `disconnect_after`: the client disconnects after this many reads."""

    path: str
    data: bytes
    headers: dict[str, str]
    valid: bool = False
    disconnect_after: int | None = None

    def __repr__(self) -> str:
        shown = self.data if len(self.data) <= MAX_SHOWN else self.data[:MAX_SHOWN] + b"..."
        flags = f"valid={self.valid}, disconnect_after={self.disconnect_after}"
        return f"FuzzCase({self.path!r}, {shown!r}, {self.headers!r}, {flags})"


def jsons(strategy: SearchStrategy[Any]) -> SearchStrategy[str]:
    return strategy.map(json.dumps)


def one_of_values(*values: Any) -> SearchStrategy[str]:
    return jsons(st.sampled_from(values))


def between(low: float, high: float, *more: float) -> SearchStrategy[str]:
    return jsons(st.sampled_from([low, high, *more]) | st.floats(low, high))


text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
word = text.filter(str.strip)
token_id = st.sampled_from([0, VOCAB_SIZE - 1]) | st.integers(0, VOCAB_SIZE - 1)
ids = st.lists(token_id, min_size=1, max_size=30)
long_ids = st.integers(MAX_MODEL_LEN - 20, MAX_MODEL_LEN - 1).map(lambda size: [i % 200 for i in range(size)])
flag = one_of_values(True, False, None)
model = one_of_values("toy", ADAPTER, f"toy:{ADAPTER}", None)
top = jsons(st.none() | st.integers(0, 20))

SAMPLING_FIELDS: dict[str, SearchStrategy[str]] = {
    "model": model,
    "request_id": jsons(text),
    "best_of": one_of_values(None, 0, 1),
    "n": one_of_values(1, 2, 3, None),
    "stream": flag,
    "stream_options": jsons(
        st.fixed_dictionaries({}, optional=dict.fromkeys(("include_usage", "continuous_usage_stats"), st.booleans()))
    ),
    "min_tokens": one_of_values(0, 1, 2),
    "temperature": one_of_values(0, 0, -0.0, 5e-324, 1e-5) | between(0.0, 100.0, 1.0),
    "top_k": one_of_values(-1, 0, 1, 5, INT32),
    "top_p": between(1e-9, 1.0, 5e-324),
    "min_p": between(0.0, 1.0, 5e-324),
    "repetition_penalty": between(0.01, 100.0, 1.0),
    "presence_penalty": between(-2.0, 2.0),
    "frequency_penalty": between(-2.0, 2.0),
    "seed": jsons(st.sampled_from([0, -1, INT64, -INT64 - 1]) | st.integers(-INT64, INT64)),
    "stop": jsons(text | st.lists(text, max_size=16) | st.just(["x" * 1024] * 16)),
    "stop_token_ids": jsons(st.lists(token_id, max_size=20)),
    "include_stop_str_in_output": flag,
    "skip_special_tokens": flag,
    "ignore_eos": flag,
    "logit_bias": jsons(st.dictionaries(token_id.map(str), st.floats(-100, 100), max_size=20)),
    # more than the other fields can forbid together
    "allowed_token_ids": jsons(st.lists(token_id, min_size=40, max_size=60, unique=True)),
    "bad_words": jsons(st.lists(word, max_size=4)),
    "truncate_prompt_tokens": one_of_values(-1, 1, 5, INT32),
    "prompt_logprobs": top,
    "return_token_ids": flag,
    "return_speculation": flag,
    "add_special_tokens": flag,
    "priority": one_of_values(0, -INT32, INT32),
    "cache_salt": jsons(text),
    "speculation": jsons(
        st.fixed_dictionaries(
            {},
            optional={
                "enabled": st.none() | st.booleans(),
                "max_draft_tokens": st.none() | st.integers(0, 4096),
                "drafters": st.none() | st.just([]),
            },
        )
    ),
    "user": jsons(text),
    "metadata": jsons(st.dictionaries(text, text, max_size=2)),
}
COMPLETION_FIELDS: dict[str, SearchStrategy[str]] = SAMPLING_FIELDS | {
    "echo": flag,
    "logprobs": top,
    "suffix": one_of_values(None, ""),
}
CHAT_FIELDS: dict[str, SearchStrategy[str]] = SAMPLING_FIELDS | {
    "max_completion_tokens": one_of_values(None, 2, 5),
    "logprobs": one_of_values(True),
    "top_logprobs": one_of_values(None, 0),
    "add_generation_prompt": flag,
    "continue_final_message": one_of_values(None, False),
    "chat_template_kwargs": one_of_values(None, {}),
    "documents": one_of_values(None, []),
    "reasoning_effort": one_of_values(None, "none"),
    "verbosity": one_of_values(None, "medium"),
    "tools": one_of_values(None, []),
    "tool_choice": one_of_values(None, "none", "auto"),
    "parallel_tool_calls": flag,
    "structured_outputs": one_of_values(None),
    "guided_json": one_of_values(None),
    "response_format": one_of_values(None, {}, {"type": "text"}),
}
# for the template to take: one with Latin letters may resemble a known role, and is refused as misspelled
other_role = st.just("narrator") | text.filter(lambda role: not set(role.casefold()) & set(ascii_lowercase))
part = st.fixed_dictionaries({"type": st.just("text"), "text": text})
message = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "assistant"]) | other_role,
        "content": text | st.lists(part, max_size=2),
    },
    optional={"name": text, "tool_calls": st.just([])},
)
messages = jsons(st.lists(message, min_size=1, max_size=3))
max_tokens = jsons(st.integers(2, 6))
TOKENIZE_FIELDS: dict[str, SearchStrategy[str]] = {
    "model": model, "add_special_tokens": flag, "add_generation_prompt": flag, "return_token_strs": flag
}  # fmt: skip
prompt = jsons(text | st.lists(text | ids, min_size=1, max_size=3) | ids | long_ids)
REQUIRED: dict[str, dict[str, SearchStrategy[str]]] = {
    COMPLETIONS: {"prompt": prompt, "max_tokens": max_tokens},
    CHAT: {"messages": messages, "max_tokens": max_tokens},
    TOKENIZE: {"prompt": jsons(text)},
    DETOKENIZE: {"tokens": jsons(st.lists(st.integers(0, INT32), max_size=20))},
}
OPTIONAL = {
    COMPLETIONS: COMPLETION_FIELDS,
    CHAT: CHAT_FIELDS,
    TOKENIZE: TOKENIZE_FIELDS,
    DETOKENIZE: {"model": model},
}

LITERALS = (
    "null", "true", "0", "1", "-1", "-0.0", "1.5", "5e-324", "1e999", "-1e308", "NaN", "-Infinity", "1" + "0" * 30,
    str(2**31), str(2**63), str(2**64), "9" * 5000, '""', '" "', '"0"', '"\\u0000"', '"\\ud800"', '"\\udc00x"',
    '"\\ud83d\\ude42"', '"\x01"', '"' + "x" * 70_000 + '"', "[]", "{}", "[[]]", "[null]", '[""]', '["\\udfff"]', "[-1]",
    f"[{VOCAB_SIZE}]", "[0.5]", "[true]", '["a",1]', "[5" + ",5" * 3000 + "]", '["a"' + ',"a"' * 300 + "]",
    '{"a":1}', '{"5":"a"}', '{"5":NaN}', '{"05":1,"5":2}', '{"-1":1}', '{"\\ud800":1}', '{"type":"json_object"}',
    '{"enabled":2}', '{"max_draft_tokens":-1}', '{"include_usage":"yes"}', '[{"role":"user"}]', '[{"role":1}]',
    '[{"role":"user","content":null}]', '[{"content":"a"}]',
    '[{"role":"user","content":[{"type":"text"}]}]', '[{"role":"","content":[{}]}]',
    "[" * 3000 + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000, "nul", "'a'", "[1,]", '"', "",
)  # fmt: skip
"""Wrong for most fields; a few are right for some."""
any_json = jsons(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    )
)
wrong_value = st.sampled_from(LITERALS) | any_json
path = st.sampled_from([COMPLETIONS] * 5 + [CHAT] * 4 + [TOKENIZE, DETOKENIZE])
HEADERS: tuple[dict[str, str], ...] = (
    {}, {}, {"Content-Type": "text/plain"}, {"Content-Type": "application/json; charset=utf-16"}, {"Content-Type": "x"},
    {"Content-Type": "multipart/form-data"}, {"Content-Encoding": "gzip"}, {"Content-Encoding": "deflate"},
    {"Content-Encoding": "identity"}, {"Content-Encoding": "none of these"}, {"Accept": "text/html"},
)  # fmt: skip


def write_object(fields: list[tuple[str, str]]) -> bytes:
    """Keys in order, twice where they are given twice."""
    return ("{" + ",".join(f"{json.dumps(key)}:{value}" for key, value in fields) + "}").encode()


@st.composite
def valid_fields(draw: Any, route: str, max_fields: int = 8) -> dict[str, str]:
    names = draw(st.lists(st.sampled_from(sorted(OPTIONAL[route])), max_size=max_fields, unique=True))
    return {name: draw(strategy) for name, strategy in REQUIRED[route].items()} | {
        name: draw(OPTIONAL[route][name]) for name in names
    }


@st.composite
def valid(draw: Any) -> FuzzCase:
    route = draw(path)
    return FuzzCase(route, write_object(list(draw(valid_fields(route)).items())), {}, valid=True)


@st.composite
def invalid(draw: Any) -> FuzzCase:
    """A valid body with one to three wrong fields: replaced, given twice, or left out."""
    route = draw(path)
    fields = list(draw(valid_fields(route)).items())
    for name in draw(st.lists(st.sampled_from([*REQUIRED[route], *OPTIONAL[route]]), min_size=1, max_size=3)):
        if draw(st.booleans()):
            fields = [(key, value) for key, value in fields if key != name]
        if draw(st.integers(0, 9)):
            fields.append((name, draw(wrong_value)))
    return FuzzCase(route, write_object(fields), draw(st.sampled_from(HEADERS[:5])))


@st.composite
def malformed(draw: Any) -> FuzzCase:
    """Not a JSON object: truncated, in another encoding, with inserted bytes, or random bytes."""
    route = draw(path)
    data = write_object(list(draw(valid_fields(route, 2)).items()))
    at = draw(st.integers(0, len(data)))
    cuts = [data[:at] + between + data[at:] for between in (b"", b"\xff", b"\0", b"\xed\xa0\x80")]
    others = [data[:at], b"\xef\xbb\xbf" + data, data.decode().encode("utf-16"), data * 2, b"[" + data + b"]"]
    forms = [*cuts, *others, b"", b"[" * 50_000, draw(wrong_value).encode(), draw(st.binary(max_size=50))]
    return FuzzCase(route, draw(st.sampled_from(forms)), draw(st.sampled_from(HEADERS)))


@st.composite
def disconnecting(draw: Any) -> FuzzCase:
    """A long request whose client disconnects before, or soon after, the first event."""
    route = draw(st.sampled_from([COMPLETIONS, CHAT]))
    fields = draw(valid_fields(route, 4)) | {"max_tokens": str(LONG), "stream": draw(flag), "ignore_eos": "true"}
    fields.pop("max_completion_tokens", None)
    return FuzzCase(route, write_object(list(fields.items())), {}, disconnect_after=draw(st.integers(0, 5)))


bodies = st.one_of(valid(), valid(), invalid(), invalid(), invalid(), malformed())
cases = bodies | bodies | bodies | disconnecting()
