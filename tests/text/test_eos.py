"""The EOS tokens: which file states them, what is refused, and what the model cannot generate."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from specserve.errors import ModelError, RequestError
from specserve.text.tokenizer import HfTokenizer
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import toy_request
from specserve_workbench.testing.toy import write_checkpoint
from specserve_workbench.testing.toy_tokenizer import EOS_ID

if TYPE_CHECKING:
    from pathlib import Path

each_kernel_set = pytest.mark.parametrize("plugins", [(), ("cpu",)], ids=["torch", "cpu"])


def directory(path: Path, generation: Any, in_config: Any, vocab_size: int = 320) -> Path:
    """A toy model whose two files state these eos_token_id; "absent" leaves the key out."""
    write_checkpoint(path, vocab_size=vocab_size)
    for name, eos_ids in (("generation_config.json", generation), ("config.json", in_config)):
        content = json.loads((path / name).read_text()) | {"eos_token_id": eos_ids}
        (path / name).write_text(json.dumps({k: v for k, v in content.items() if v != "absent"}))
    return path


@pytest.mark.parametrize(
    ("generation", "in_config", "eos_ids"),
    [
        ([2, 3], 9, (2, 3)),
        (0, 9, (0,)),
        ([3, 2, 3], 9, (3, 2)),
        ("absent", 9, (9,)),
        (None, [7, 8], (7, 8)),
        ([], 319, (319,)),
        ("absent", "absent", (EOS_ID,)),
        (None, None, (EOS_ID,)),
        (None, "is not read where the other file has one", None),
        ([2], "is not read where the other file has one", (2,)),
    ],
)
def test_the_generation_file_goes_before_the_configuration_and_the_tokenizer_comes_last(
    tmp_path: Path, generation: Any, in_config: Any, eos_ids: tuple[int, ...] | None
) -> None:
    path = directory(tmp_path, generation, in_config)
    if eos_ids is None:
        with pytest.raises(ModelError, match=r"config\.json: eos_token_id must be"):
            HfTokenizer.from_dir(path)
    else:
        assert HfTokenizer.from_dir(path).eos_token_ids == eos_ids


@pytest.mark.parametrize("wrong", [-1, [2, -1], 2.0, "2", True, [None], [[2]], {"id": 2}], ids=str)
@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
def test_an_eos_token_id_that_is_no_token_id_stops_start_up(tmp_path: Path, wrong: Any, file: str) -> None:
    path = directory(tmp_path, wrong if file.startswith("generation") else "absent", wrong)
    with pytest.raises(ModelError) as error:
        make_engine(path)
    assert str(error.value) == (
        f"{path / file}: eos_token_id must be a token id of at least 0, a list of such, or null; got {wrong!r}. "
        "Correct the file or download it again."
    )


@each_kernel_set
def test_an_eos_token_beyond_the_vocabulary_is_ignored_with_a_warning(
    tmp_path: Path, plugins: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    path = directory(tmp_path, [319, 500, 320], 9)
    with caplog.at_level(logging.WARNING):
        engine = make_engine(path, plugins=plugins).engine
    (record,) = [r for r in caplog.records if r.name == "specserve.text.eos"]
    assert record.getMessage() == (
        f"{path}: the EOS tokens 500, 320 are ignored, since the model has 320 tokens, numbered from 0"
    )
    prefers_eos = {"logit_bias": {319: 100.0}, "max_tokens": 5}
    requests = [toy_request(str(n), (1, 2), min_tokens=n, **prefers_eos) for n in (0, 3)]
    tokens = run_requests(engine, requests).tokens()
    assert [len(tokens[str(n)]) for n in (0, 3)] == [1, 4]
    assert tokens["0"][-1] == tokens["3"][-1] == 319


@each_kernel_set
def test_a_model_that_can_generate_no_eos_token_generates_up_to_max_tokens(
    tmp_path: Path, plugins: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    path = directory(tmp_path, "absent", "absent", vocab_size=300)  # the tokenizer's is 317
    with caplog.at_level(logging.WARNING):
        engine = make_engine(path, plugins=plugins).engine
    assert "317 are ignored, since the model has 300 tokens, numbered from 0; no token ends a text" in caplog.text
    run = run_requests(engine, [toy_request("a", (1, 2), max_tokens=9, min_tokens=9, allowed_token_ids=(299, 4))])
    assert (len(run.tokens()["a"]), run.outputs["a"].finish_reason) == (9, "length")


@pytest.mark.parametrize(
    ("prompt", "params", "name"),
    [
        ("<|eos|>", {}, "prompt"),
        ("a", {"stop_token_ids": (317,)}, "stop_token_ids"),
        ("a", {"bad_words": ((317,),)}, "bad_words"),
        ("a", {"logit_bias": {317: 1.0}}, "logit_bias"),
        ("a", {"allowed_token_ids": (1, 317)}, "allowed_token_ids"),
    ],
)
def test_ids_of_a_tokenizer_that_knows_more_tokens_than_the_model_are_refused_by_name(
    tmp_path: Path, prompt: str, params: dict[str, Any], name: str
) -> None:
    assembled = make_engine(directory(tmp_path, [4], 4, vocab_size=300))
    ids = assembled.tokenizer.encode(prompt)
    with pytest.raises(RequestError, match=f"{name}: token ids are between 0 and 299; got 317"):
        assembled.engine.check(toy_request("a", ids, **params))
