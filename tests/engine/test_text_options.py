"""Options in place of what the model's directory says: tokenizer, sampling defaults; seeds; logprobs."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from transformers import GenerationConfig

from specserve.config import EngineConfig
from specserve.engine.make_tokenizer import make_tokenizer
from specserve.errors import ConfigError, ModelError, RequestError
from specserve.text.sampling_defaults import UNUSED
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import toy_request

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def bare_model(toy_model: Path, tmp_path: Path) -> Path:
    """The toy model without a tokenizer, and with defaults of its own."""
    path = tmp_path / "bare"
    shutil.copytree(toy_model, path)
    (path / "tokenizer.json").unlink()
    (path / "generation_config.json").write_text(json.dumps({"temperature": 0.3, "top_k": 5, "eos_token_id": [3]}))
    return path


def test_another_tokenizer_is_used_with_the_models_ends(bare_model: Path, toy_model: Path) -> None:
    with pytest.raises(ModelError, match=r"has no tokenizer\.json"):
        make_engine(bare_model)
    made = make_engine(bare_model, tokenizer=str(toy_model))
    assert made.tokenizer.encode("hello") == make_engine(toy_model).tokenizer.encode("hello")
    assert made.tokenizer.eos_token_ids == (3,)
    assert run_requests(made.engine, [toy_request("r", [1, 2])]).outputs["r"].tokens


def test_a_tokenizer_that_is_not_the_models_is_refused(toy_model: Path, demo_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"tokenizer: there is no directory {tmp_path}/none"):
        make_engine(toy_model, tokenizer=f"{tmp_path}/none")
    with pytest.raises(ConfigError, match=r"tokenizer: .* has \d+ tokens, and the model 320"):
        make_engine(toy_model, tokenizer=str(demo_model))


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("auto", {"temperature": 0.3, "top_k": 5}),
        ("none", {}),
        ({"temperature": 0.6, "min_p": 0.1}, {"temperature": 0.6, "top_k": 5, "min_p": 0.1}),
        ({"top_k": -1}, {"temperature": 0.3, "top_k": 0}),
    ],
)
def test_defaults_are_the_models_or_none_or_others_over_the_models(
    bare_model: Path, toy_model: Path, setting: Any, expected: dict[str, float]
) -> None:
    config = EngineConfig(generation_config=setting, tokenizer=str(toy_model))
    tokenizer = make_tokenizer(config, bare_model)
    assert tokenizer.sampling_defaults == expected
    assert tokenizer.eos_token_ids == (3,)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("some", "generation_config must be one of auto, none; got 'some'"),
        ({"temprature": 1.0}, "generation_config has temperature, .*got 'temprature'"),
        ({"temperature": -1.0}, "generation_config: temperature: must be between"),
        ({"top_p": 0.0}, "generation_config: top_p: must be above 0"),
        ({"top_k": 1.5}, "generation_config: .*top_k"),
    ],
)
def test_wrong_defaults_stop_start_up(toy_model: Path, setting: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_tokenizer(EngineConfig(generation_config=setting), toy_model)


def test_a_default_of_another_type_in_the_models_file_stops_start_up(bare_model: Path, toy_model: Path) -> None:
    file = bare_model / "generation_config.json"
    file.write_text(json.dumps({"temperature": "0.7"}))
    for setting in ("auto", {"top_p": 0.5}):
        with pytest.raises(ConfigError, match=rf'{file}: temperature: must be a number.*got "0\.7"'):
            make_tokenizer(EngineConfig(generation_config=setting, tokenizer=str(toy_model)), bare_model)
    make_tokenizer(EngineConfig(generation_config="none", tokenizer=str(toy_model)), bare_model)


def test_defaults_that_are_not_followed_are_told(
    bare_model: Path, toy_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = bare_model / "generation_config.json"
    config = EngineConfig(tokenizer=str(toy_model))
    file.write_text(json.dumps({"num_beams": 1, "typical_p": 1.0, "do_sample": True, "max_time": None}))
    make_tokenizer(config, bare_model)
    assert not caplog.records
    file.write_text(json.dumps({"num_beams": 4, "max_new_tokens": 512, "suppress_tokens": [7]}))
    make_tokenizer(config, bare_model)
    (record,) = caplog.records
    told = "num_beams = 4, suppress_tokens = [7], max_new_tokens = 512: not followed here"
    assert record.getMessage().startswith(f"{file}: {told}")


def test_every_key_that_is_told_of_is_one_of_transformers() -> None:
    assert set(UNUSED) <= set(vars(GenerationConfig())) | {"constraints", "force_words_ids"}


def sampled(model: Path, seed: int | None, names: str) -> list[list[int]]:
    requests = [toy_request(name, [1, 2], temperature=1.0) for name in names]
    run = run_requests(make_engine(model, seed=seed).engine, requests)
    return [run.outputs[name].tokens for name in names]


def test_with_a_seed_a_start_repeats_itself_and_its_requests_differ(toy_model: Path) -> None:
    once = sampled(toy_model, 7, "abc")
    assert sampled(toy_model, 7, "xyz") == once
    assert sampled(toy_model, 8, "abc") != once
    assert sampled(toy_model, None, "abc") != sampled(toy_model, None, "abc")
    assert len({tuple(tokens) for tokens in once}) == 3


def test_a_requests_own_seed_goes_before_the_engines(toy_model: Path) -> None:
    def tokens(seed: int | None) -> list[int]:
        request = toy_request("r", [1, 2], temperature=1.0, seed=5)
        return run_requests(make_engine(toy_model, seed=seed).engine, [request]).outputs["r"].tokens

    assert tokens(None) == tokens(9)


@pytest.mark.parametrize("default_plugins", [True, False], ids=["native", "torch"])
def test_more_logprobs_may_be_allowed(toy_model: Path, default_plugins: bool) -> None:
    made = make_engine(toy_model, max_logprobs=300, default_plugins=default_plugins)
    request = toy_request("r", [1, 2], logprobs=300, prompt_logprobs=250, max_tokens=2)
    made.engine.check(request)
    output = run_requests(made.engine, [request]).outputs["r"]
    assert [len(entry.top_ids) for entry in output.logprobs] == [300, 300]
    assert len(set(output.logprobs[0].top_ids)) == 300
    assert list(output.logprobs[0].top_logprobs) == sorted(output.logprobs[0].top_logprobs, reverse=True)
    assert len(output.prompt_logprobs[0].top_ids) == 250
    with pytest.raises(RequestError, match="logprobs: must be between 0 and 300; got 301"):
        made.engine.check(toy_request("r", [1], logprobs=301))


@pytest.mark.parametrize(("field", "value"), [("max_logprobs", -1), ("max_logprobs", 1001), ("seed", 2**63)])
def test_values_out_of_range_are_refused(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{field} must be between"):
        EngineConfig(**{field: value})
