"""What cannot be served is refused before the engine takes it, in bounded time, with the place; nothing crashes."""

from __future__ import annotations

import json
import math
import time

import pytest
from grammar_cases import PERSON, grammar_engine, structured, wanted
from spoilt_weights import spoil

from specserve.errors import ConfigError, RequestError
from specserve.text.tokenizer import HfTokenizer
from specserve.types import StructuredOutput
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import toy_request, without_drafts
from specserve_workbench.testing.toy import write_checkpoint


def tag(schema, triggers=("<",)):
    return {"structures": [{"begin": "<a>", "schema": schema, "end": ""}], "triggers": list(triggers)}


NESTED = json.dumps({"type": "integer"})
for _ in range(70):
    NESTED = f'{{"type": "array", "items": {NESTED}}}'
REFUSED = {
    "not JSON": ("json_schema", "{", "not valid JSON"),
    "no schema": ("json_schema", "[1]", "a schema is a JSON object or a boolean; got list"),
    "unknown type": ("json_schema", {"type": "strang"}, "Invalid type: strang"),
    "empty enum": ("json_schema", {"enum": []}, "no value satisfies the schema"),
    "contradiction": ("json_schema", {"type": "integer", "minimum": 5, "maximum": 3}, r"minimum \(5\) is greater"),
    "nothing": ("json_schema", "false", "no value satisfies the schema"),
    "not enforced": ("json_schema", {"type": "array", "uniqueItems": True}, "uniqueItems at /.*unsupported=validate"),
    "overlapping oneOf": ("json_schema", {"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf"),
    "no such definition": ("json_schema", {"$ref": "#/$defs/A"}, r"\$ref|does not exist|Pointer"),
    "from elsewhere": ("json_schema", {"$ref": "http://127.0.0.1/schema"}, "no other document is read"),
    "deep": ("json_schema", NESTED, "nests too deeply; 64 levels are allowed"),
    "very deep": ("json_schema", "[" * 30_000, "nests too deeply|not valid JSON"),
    "large": ("json_schema", {"title": "x" * 70_000}, r"has \d+ bytes; 65536 are allowed"),
    "a pattern with look-ahead": ("json_schema", {"type": "string", "pattern": "(?=a)a"}, "look-around"),
    "an open group": ("regex", "(a+", "unclosed group"),
    "no choices": ("choice", "[]", "a list of at least one text"),
    "an empty choice": ("choice", ["a", ""], "none of them empty"),
    "numbers": ("choice", [1], "a list of at least one text"),
    "too many choices": ("choice", [str(i) for i in range(5000)], "5000 choices; 4096 are allowed"),
    "no grammar": ("grammar", "what is this", "."),
    "no start": ("grammar", 'root ::= name "x"', "."),
    "no tag": ("structural_tag", "[]", "a structural tag is"),
    "no structures": ("structural_tag", {"structures": [], "triggers": ["<"]}, "a structural tag is"),
    "another trigger": ("structural_tag", tag({}, triggers=["["]), "starts with none of the triggers"),
    "a wrong schema in a tag": ("structural_tag", tag({"type": "x"}), "Invalid type"),
}  # fmt: skip
NEIGHBOUR = toy_request("neighbour", range(9), temperature=0.8, seed=4)


@pytest.fixture(scope="module")
def engine(toy_model):
    return grammar_engine(toy_model)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_served_is_refused(name, engine):
    kind, text, reason = REFUSED[name]
    form = wanted(kind, text)
    began = time.process_time()
    with pytest.raises(RequestError, match=reason) as refusal:
        engine.check(structured("r", (1, 2), form))
    assert time.process_time() - began < 5
    assert refusal.value.param == "structured_outputs"
    assert str(refusal.value).startswith("structured_outputs: ")
    assert len(str(refusal.value)) < 700
    assert run_requests(engine, [NEIGHBOUR]).outputs["neighbour"].finish_reason


@pytest.mark.parametrize("size", [10_000, 60_000])
def test_large_schemas_take_bounded_time(engine, size):
    properties: dict[str, object] = {}
    while len(json.dumps(properties)) < size:
        properties[f"key{len(properties)}"] = {"type": "string", "pattern": f"^[a-z]{{1,{len(properties) % 40 + 1}}}$"}
    began = time.process_time()
    engine.check(structured("r", (1, 2), wanted("json_schema", {"type": "object", "properties": properties})))
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "form",
    [
        wanted("regex", "(.*a.{18}b|.*b.{19}a|.*c.{17}d.*e.{14}f)*"),
        wanted("regex", "((a{1000}){1000}){1000}"),
        wanted("regex", "(a+)+b(c|d){1,5000}(.*x.*){20}"),
        wanted("json_schema", {"$defs": {"A": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/A"}),
        wanted("grammar", "root ::= root root | [ab]"),
    ],
    ids=["many states", "many repetitions", "many ways", "endless reference", "ambiguous"],
)
def test_what_grows_while_it_is_matched_ends_its_own_request(form, engine):
    """A grammar may be small and its states many: the library's limits end the request, and no other."""
    bad = structured("bad", range(40), form, temperature=1.0, seed=1, max_tokens=300)
    alone = run_requests(engine, [NEIGHBOUR]).decided()
    began = time.process_time()
    outcome = run_requests(engine, [bad, NEIGHBOUR])
    assert time.process_time() - began < 20
    assert outcome.decided()["neighbour"] == alone["neighbour"]
    assert outcome.outputs["bad"].finish_reason in ("error", "length", "stop")


def test_nothing_in_common_with_other_limits_ends_the_request_with_its_reason(engine):
    form = wanted("choice", ["hello"])
    impossible = structured("bad", range(4), form, allowed_token_ids=(5,))
    alone = run_requests(engine, [NEIGHBOUR]).decided()
    outcome = run_requests(engine, [impossible, NEIGHBOUR])
    assert outcome.outputs["bad"].finish_reason == "error"
    assert "left no token to choose from" in str(outcome.outputs["bad"].steps[-1].error)
    assert outcome.decided()["neighbour"] == alone["neighbour"]


def test_drafts_change_no_token_before_an_end_without_tokens(toy_model):
    """The letters of the choice are allowed up to the last: the tokens before it come, drafted or not."""
    tokens = HfTokenizer.from_dir(toy_model).encode("the first of them")
    form, allowed = wanted("choice", ["the first of them"]), tuple(tokens[:-1])
    impossible = structured("bad", range(4), form, allowed_token_ids=allowed, logprobs=0)
    plain = run_requests(grammar_engine(toy_model), without_drafts([impossible]))
    drafted = run_requests(grammar_engine(toy_model), [impossible, NEIGHBOUR])
    assert plain.tokens()["bad"] == tokens[: tokens.index(tokens[-1])]
    assert drafted.decided()["bad"] == plain.decided()["bad"]
    assert plain.outputs["bad"].finish_reason == "error"


def test_min_tokens_beyond_the_end_of_a_grammar_ends_the_request_with_its_reason(engine):
    outcome = run_requests(engine, [structured("bad", range(4), wanted("choice", ["ab"]), min_tokens=9)])
    assert outcome.outputs["bad"].finish_reason == "error"


def test_behind_the_end_only_ends_of_text_come(engine, toy_model):
    """For ignore_eos, which benchmarks send: the text stays what the grammar says."""
    form = wanted("choice", ["hello"])
    outcome = run_requests(engine, [structured("r", range(4), form, ignore_eos=True, max_tokens=12)])
    tokens = outcome.tokens()["r"]
    (end,) = engine.parts.limits.eos_token_ids
    assert len(tokens) == 12
    assert tokens[-1] == end
    assert set(tokens[tokens.index(end) :]) == {end}


def test_unsupported_keywords_may_be_ignored(toy_model):
    engine = grammar_engine(toy_model, grammar={"unsupported": "ignore"})
    schema = {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "maxItems": 2}
    engine.check(structured("r", (1, 2), wanted("json_schema", schema)))


def test_without_the_plugin_a_form_is_refused_with_what_to_do(toy_model):
    engine = make_engine(toy_model).engine
    form = StructuredOutput(kind="json_schema", text="{}", param="response_format")
    with pytest.raises(
        RequestError, match="start it with --plugin grammar, after pip install specserve-plugin-grammar"
    ) as refusal:
        engine.check(structured("r", (1, 2), form))
    assert refusal.value.param == "response_format"


def test_a_model_without_an_end_of_text_is_refused_at_start_up(tmp_path):
    model = write_checkpoint(tmp_path / "model")
    settings = json.loads((model / "tokenizer_config.json").read_text())
    del settings["eos_token"]
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    for name in ("generation_config.json", "config.json"):
        if (model / name).exists():
            content = json.loads((model / name).read_text())
            content.pop("eos_token_id", None)
            (model / name).write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="grammar needs a model with an end-of-text token"):
        grammar_engine(model)


def test_compiled_grammars_are_kept_and_bounded(toy_model):
    engine = grammar_engine(toy_model, grammar={"cache_size": "3"})
    grammars = next(p.processor.grammars for p in engine.parts.processors if hasattr(p.processor, "grammars"))
    for i in range(8):
        engine.check(structured("r", (1, 2), wanted("regex", f"a{{{i + 1}}}")))
    assert [each.text for each in grammars.compiled] == ["a{6}", "a{7}", "a{8}"]
    kept = dict(grammars.compiled)
    engine.check(structured("r", (1, 2), wanted("regex", "a{6}")))
    run_requests(engine, [structured("r", (1, 2), wanted("regex", "a{6}"))])
    assert dict(grammars.compiled) == kept
    assert list(grammars.compiled)[-1].text == "a{6}"


def test_one_prototype_serves_many_requests_at_once(engine):
    requests = [
        structured(str(i), range(i, i + 5), wanted("json_schema", PERSON), temperature=1.0, seed=i) for i in range(16)
    ]
    together = run_requests(engine, requests).decided()
    assert {r.request_id: run_requests(engine, [r]).decided()[r.request_id] for r in requests} == together


def test_logits_that_are_not_numbers_end_the_request_with_the_same_error_whatever_is_drafted(tmp_path):
    spoil(write_checkpoint(tmp_path), "lm_head.weight", slice(None), math.nan)
    requests = [structured("sick", (1, 2), wanted("regex", "(name|number): .*")), NEIGHBOUR]
    ends = []
    for forced_drafts in (True, False):
        engine = grammar_engine(tmp_path, beside=("cpu",), grammar={"forced_drafts": forced_drafts})
        served = run_requests(engine, requests).outputs
        assert (served["sick"].finish_reason, served["neighbour"].finish_reason) == ("error", "length")
        ends.append((served["sick"].tokens, served["sick"].steps[-1].error))
    assert "the grammar does not allow token 0. Where the model chose it, no token that is allowed had a" in ends[0][1]
    assert "finite logit: check the model's weights for NaN and infinities." in ends[0][1]
    assert ends[0] == ends[1]
