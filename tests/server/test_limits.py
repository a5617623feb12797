"""The limits of requests: the page, the schema of the bodies and the engine's messages say the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from specserve import limits
from specserve.engine.admission import EngineLimits, check_request
from specserve.errors import RequestError
from specserve_server import limits as body_limits
from specserve_server.bodies.requests import ChatBody
from specserve_workbench.testing.requests import toy_request

PAGE = (Path(__file__).parents[2] / "docs" / "server.md").read_text()
TABLE = dict(
    re.findall(
        r"^\| (`.*`|strings .*|lists .*) \| (.*) \|$",
        PAGE.partition("### Limits")[2].partition("\n## ")[0],
        flags=re.MULTILINE,
    )
)
DOCUMENTED = {
    "`n`": [body_limits.MAX_N],
    "`prompt`": [body_limits.MAX_PROMPTS, body_limits.MAX_SEQUENCES],
    "`messages`": [body_limits.MAX_MESSAGES],
    "`logprobs`, `top_logprobs`, `prompt_logprobs`": [limits.MAX_LOGPROBS],
    "`stop`": [limits.MAX_STOP_STRINGS, limits.MAX_STRING_LENGTH],
    "`stop_token_ids`": [limits.MAX_STOP_TOKEN_IDS],
    "`logit_bias`": [limits.MAX_LOGIT_BIASES, -limits.MAX_LOGIT_BIAS, limits.MAX_LOGIT_BIAS],
    "`bad_words`": [limits.MAX_BAD_WORDS, limits.MAX_STRING_LENGTH, limits.MAX_BAD_WORD_SEQUENCES],
    "`documents`": [body_limits.MAX_DOCUMENTS],
    "`chat_template_kwargs`": [body_limits.MAX_TEMPLATE_KWARGS_BYTES, body_limits.MAX_TEMPLATE_KWARGS_DEPTH],
    "`cache_salt`, `request_id`": [body_limits.MAX_CACHE_SALT_LENGTH],
    "`speculation.max_draft_tokens`": [limits.MAX_DRAFT_TOKENS],
    "`speculation.drafters`": [limits.MAX_DRAFTERS],
    "strings of the body, keys among them; its lists and objects": [body_limits.MAX_BODY_VALUES],
    "lists and objects within each other": [body_limits.MAX_BODY_DEPTH],
    "`temperature`": [limits.MAX_TEMPERATURE],
    "`repetition_penalty`": [limits.MAX_REPETITION_PENALTY, limits.MIN_REPETITION_PENALTY],
    "`presence_penalty`, `frequency_penalty`": [limits.MAX_ADDITIVE_PENALTY, -limits.MAX_ADDITIVE_PENALTY],
}


def test_the_page_lists_every_limit_with_its_value() -> None:
    assert {
        field: [float(number) for number in re.findall(r"-?\d[\d.]*", text)] for field, text in TABLE.items()
    } == DOCUMENTED


def test_the_schema_of_a_body_has_the_limit_of_bad_words() -> None:
    schema: Any = msgspec.json.schema(ChatBody)
    words = schema["$defs"]["ChatBody"]["properties"]["bad_words"]["anyOf"][0]
    assert (words["maxItems"], words["items"]["maxLength"]) == (limits.MAX_BAD_WORDS, limits.MAX_STRING_LENGTH)


def test_the_engine_takes_the_sequences_of_as_many_bad_words_and_no_more() -> None:
    allowed = ((1, 2),) * limits.MAX_BAD_WORD_SEQUENCES
    capacity = EngineLimits(vocab_size=9, max_model_len=9, cache_tokens=9)
    check_request(toy_request("r", [1], bad_words=allowed), capacity)
    with pytest.raises(RequestError, match=f"at most {limits.MAX_BAD_WORDS} words"):
        check_request(toy_request("r", [1], bad_words=(*allowed, (1, 2))), capacity)
