"""Structured output is the same with and without drafts, alone and with every feature that the plugin declares."""

from __future__ import annotations

import json

import msgspec
import pytest
from grammar_cases import PERSON, grammar_engine, structured, wanted

from specserve.types import Reasoning
from specserve_grammar.sources import KINDS
from specserve_workbench.testing.drafters import NoisyDrafter, OracleDrafter, WrongDrafter
from specserve_workbench.testing.engines import accepted, assert_lossless, run_requests, verify_everything
from specserve_workbench.testing.requests import (
    STRUCTURED,
    TOY_VOCAB,
    structured_requests,
    varied_requests,
    without_drafts,
)
from toy_adapters import lora_engine, under, write_adapter

BEHIND = msgspec.structs.replace(wanted("json_schema", PERSON), reasoning=Reasoning("", "e"))
CALL = {"begin": "[n ", "schema": {"type": "integer", "maximum": 99}, "end": "]"}
ANSWER = {"kind": "json_schema", "text": json.dumps(PERSON)}
EITHER = wanted("structural_tag", {"structures": [CALL], "triggers": ["["], "separator": " ", "answer": ANSWER})
COMPOSED = [
    structured(f"{name} {seed}", range(seed, seed + 30), form, temperature=0.9, seed=seed, logit_bias={ord("e"): 4.0})
    for name, form in (("reasons", BEHIND), ("calls or answers", EITHER))
    for seed in range(3)
]
REQUESTS = [*structured_requests(KINDS), *COMPOSED, *varied_requests(10)]
BESIDE = {
    "adaptive": {},
    "cpu": {},
    "eagle": {"steps": "3"},
    "hybrid_attn": {},
    "lora": {},
    "ngram": {},
}


def plain_and_drafted(model, requests=REQUESTS, *, everything=True, **options):
    plain = run_requests(grammar_engine(model, **options), without_drafts(requests))
    drafted = run_requests(grammar_engine(model, everything=everything, **options), requests)
    assert drafted.decided() == plain.decided()
    assert not drafted.metrics.drafter_faults
    assert not drafted.metrics.faults.counts
    return plain, drafted


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_forced_drafts_change_nothing(toy_model, dtype):
    plain, drafted = plain_and_drafted(toy_model, dtype=dtype)
    assert accepted(plain) == (0, 0)
    assert accepted(drafted)[0] > 300


@pytest.mark.parametrize("unsupported", ["validate", "ignore"])
def test_drafts_change_nothing_where_a_schema_is_enforced_in_part(toy_model, unsupported):
    form = wanted("json_schema", {**PERSON, "minProperties": 4, "if": {"required": ["name"]}, "then": {"not": {}}})
    requests = [structured(f"{seed}", range(seed, seed + 20), form, temperature=0.9, seed=seed) for seed in range(6)]
    _, drafted = plain_and_drafted(toy_model, requests, grammar={"unsupported": unsupported})
    assert accepted(drafted)[0] > 100


@pytest.mark.parametrize("name", BESIDE)
def test_drafts_beside_another_plugin_change_nothing(name, toy_model):
    options = BESIDE[name] | ({"model": str(toy_model)} if name == "eagle" else {})
    _, drafted = plain_and_drafted(
        toy_model, beside=(name,), plugin_options={name: options}, everything=name != "adaptive"
    )
    assert accepted(drafted)[0] > (0 if name == "adaptive" else 300)


@pytest.fixture(scope="module")
def without_settings(toy_model):
    """What the requests get without drafts."""
    return run_requests(grammar_engine(toy_model), without_drafts(REQUESTS)).decided()


@pytest.mark.parametrize(
    "settings",
    [
        {"max_num_batched_tokens": 16},
        {"prefix_cache": False},
        {"block_size": 4},
        {"kv_memory": "600K", "max_model_len": 400, "max_num_seqs": 12},
        {"graphs": "piecewise"},
    ],
    ids=str,
)
def test_no_setting_changes_anything(toy_model, settings, without_settings):
    engine = grammar_engine(toy_model, **settings)
    outcome = run_requests(engine, REQUESTS)
    assert outcome.decided() == without_settings
    if "kv_memory" in settings:
        assert outcome.metrics.num_preemptions


def trees(outputs):
    return NoisyDrafter(outputs, p=0.7, max_width=9, vocab_size=TOY_VOCAB)


@pytest.mark.parametrize(
    "make",
    [
        trees,
        lambda outputs: OracleDrafter(outputs, 7),
        lambda outputs: WrongDrafter(outputs, 7, TOY_VOCAB),
    ],
    ids=["trees", "right", "wrong"],
)
def test_drafts_of_others_change_nothing(toy_model, make):
    """Trees among them: each node has the mask of its own path."""
    requests = structured_requests(KINDS)
    drafted = assert_lossless(toy_model, requests, make, plugins=("grammar",), allow_undeclared=True)
    assert not drafted.metrics.faults.counts
    assert accepted(drafted)[0] > 100


def test_wrong_drafts_are_cut_before_they_are_verified(toy_model):
    """Tokens that the grammar forbids cost no row."""
    requests = [structured(str(i), range(i, i + 9), wanted("regex", STRUCTURED["regex"])) for i in range(4)]
    unforced = {"grammar": {"forced_drafts": "false"}}
    options = {"plugins": ("grammar",), "allow_undeclared": True, "plugin_options": unforced}
    right = assert_lossless(toy_model, requests, lambda outputs: OracleDrafter(outputs, 7), **options)
    wrong = assert_lossless(toy_model, requests, lambda outputs: WrongDrafter(outputs, 7, TOY_VOCAB), **options)
    assert accepted(right)[0] == accepted(right)[1] > 20
    assert accepted(wrong)[0] == 0
    assert accepted(wrong)[1] < accepted(right)[1]


def test_a_request_among_others_gives_what_it_gives_alone(toy_model):
    together = run_requests(grammar_engine(toy_model, beside=("ngram",)), REQUESTS).decided()
    for request in REQUESTS[::5]:
        alone = run_requests(grammar_engine(toy_model, beside=("ngram",)), [request]).decided()
        assert alone[request.request_id] == together[request.request_id]


def test_structured_output_under_adapters(toy_model, tmp_path):
    adapters = {"one": write_adapter(tmp_path / "one", toy_model)}
    names = [None, "one"] * len(REQUESTS)

    def serve(requests):
        engine, store = lora_engine(toy_model, adapters, beside=("grammar",))
        return run_requests(verify_everything(engine), under(store, requests, names[: len(requests)]))

    drafted = serve(REQUESTS)
    assert drafted.decided() == serve(without_drafts(REQUESTS)).decided()
    assert drafted.decided() != run_requests(grammar_engine(toy_model), REQUESTS).decided()
    assert accepted(drafted)[0] > 300
