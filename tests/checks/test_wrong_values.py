"""Whatever msgspec refuses is explained: every type of our bodies and of guests' bodies, every JSON value."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from specserve.errors import RequestError
from specserve_checks.type_words import shown
from specserve_checks.wrong_values import convert, find_wrong_value
from specserve_server.bodies.messages import MessagesBody
from specserve_server.bodies.requests import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from specserve_server.bodies.responses import ResponsesBody
from specserve_server.wire.decode_body import decode_body

BODIES = (ChatBody, CompletionBody, ResponsesBody, MessagesBody, TokenizeBody, DetokenizeBody)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
OUR_NAMES = ("role", "content", "type", "text", "name", "function", "format", "id", "arguments", "schema", "a.b", "")
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(OUR_NAMES), inner, max_size=4),
    max_leaves=12,
)
WORDS_OF_MSGSPEC = ("Expected `", "`array`", "$.", "got `")


@pytest.mark.parametrize("body_type", BODIES)
def test_every_value_of_every_field_is_taken_or_explained_with_the_fields_name(body_type: type[Struct]) -> None:
    @given(st.sampled_from(body_type.__struct_fields__), VALUES)
    def refuse_or_take(name: str, value: Any) -> None:
        refusal = refusal_of(msgspec.json.encode({name: value}), body_type)
        if refusal is not None:
            assert refusal.param == name
            assert str(refusal).startswith(name)
            assert not [word for word in WORDS_OF_MSGSPEC if word in str(refusal)]
            assert "more than once" not in str(refusal)

    refuse_or_take()


def refusal_of(data: bytes, body_type: type[Struct]) -> RequestError | None:
    try:
        decode_body(data, body_type)
    except RequestError as error:
        return error
    return None


class Cat(Struct, tag="cat", forbid_unknown_fields=True):
    lives: Annotated[int, Meta(gt=0, lt=10)]


class Dog(Struct, tag="dog"):
    name: str = msgspec.field(name="Name")


class Even(Struct):
    n: int

    def __post_init__(self) -> None:
        if self.n % 2:
            raise ValueError(f"n must be even; got {self.n}.")


class Guest(Struct):
    pet: Cat | Dog | None = None
    pair: tuple[int, str] = (0, "")
    ids: frozenset[int] = frozenset()
    ratio: Annotated[float, Meta(ge=0, le=1)] | Literal["auto"] = "auto"
    table: dict[int, list[dict[str, float]]] = {}
    even: Even | None = None
    code: Annotated[str, Meta(pattern="^[a-z]+$")] = "a"
    codes: list[Annotated[str, Meta(pattern="^[a-z]+$", description="a word of small letters")]] = []


GUESTS = [
    ({"pet": {"type": "cow"}}, 'pet.type: must be "cat" or "dog"; got "cow".'),
    ({"pet": {"lives": 5}}, 'pet.type: is missing; it must be "cat" or "dog".'),
    ({"pet": {"type": "cat", "lives": 10}}, "pet.lives: must be an integer above 0 and below 10; got 10."),
    ({"pet": {"type": "cat", "lives": 9, "live": 1}}, "pet.live: there is no such name here; did you mean lives?"),
    ({"pet": {"type": "dog"}}, "pet.Name: is missing; it must be a string."),
    ({"pet": 3}, 'pet: must be an object with "lives" or an object with "Name"; got 3.'),
    ({"pair": [1]}, "pair: must be a list of 2 entries; got [1]."),
    ({"pair": [1, 2]}, "pair[1]: must be a string; got 2."),
    ({"ids": ["a"]}, 'ids[0]: must be an integer; got "a".'),
    ({"ids": 3}, "ids: must be a list of integers; got 3."),
    ({"ratio": 1.5}, "ratio: must be a number between 0 and 1; got 1.5."),
    ({"ratio": "all"}, 'ratio: must be a number between 0 and 1 or "auto"; got "all".'),
    ({"table": {"7": [{}, {"a": "b"}]}}, 'table["7"][1]["a"]: must be a number; got "b".'),
    ({"even": {"n": 3}}, "even: n must be even; got 3."),
    ({"code": "A"}, 'code: must be a string that matches ^[a-z]+$; got "A".'),
    ({"codes": ["a", "B"]}, 'codes[1]: must be a word of small letters; got "B".'),
    ({"codes": "B"}, 'codes: must be a list of strings, each a word of small letters; got "B".'),
]


@pytest.mark.parametrize(("value", "message"), GUESTS, ids=str)
def test_bodies_of_guests_are_explained_whatever_their_types(value: Any, message: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refusal:
        msgspec.json.decode(msgspec.json.encode(value), type=Guest)
    assert str(find_wrong_value(refusal.value, value, Guest)) == message


def test_a_conversion_raises_what_its_caller_makes_of_the_wrong_value() -> None:
    with pytest.raises(KeyError, match="even: must be an object"):
        convert({"even": 3}, Guest, lambda wrong: KeyError(str(wrong)))
    assert convert({"code": "z"}, Guest, lambda wrong: KeyError(str(wrong))) == Guest(code="z")


@given(VALUES | st.binary() | st.sets(st.integers()))
def test_no_value_is_shown_at_length_or_in_several_lines(value: Any) -> None:
    assert len(shown(value)) <= 60
    assert "\n" not in shown(value)


def test_of_a_huge_value_only_the_beginning_is_shown() -> None:
    assert shown([[10**6] * 10**6] * 3) == "[" + "[" + "1000000," * 7 + "1…"
    assert shown({"a" * 10**6: "b" * 10**6}) == '{"' + "a" * 57 + "…"
