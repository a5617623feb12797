"""The plugin as it is installed: one index behind its hooks, its declarations, and what it refuses at start-up."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from specserve.errors import ConfigError
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve.text.tokenizer import HfTokenizer
from specserve_ngram.options import NgramOptions
from specserve_ngram.plugin import NgramPlugin, make_index
from specserve_server.cli import main
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.engine.engine import Engine
    from specserve.types import GenerateRequest


def start(model: Path, **options: Any) -> Engine:
    """An engine with ngram that verifies whatever is drafted."""
    return make_engine(
        model, planner=FixedWidthPlanner(32), plugins=("ngram",), plugin_options={"ngram": options}
    ).engine


def metrics(engine: Engine) -> dict[tuple[str, ...], float]:
    return {(m.name, *(value for _, value in m.labels)): m.value for m in engine.observer_metrics()}


def capitals(seed: int) -> GenerateRequest:
    """Sampled from A to Z: never twice the same text, and the same tokens when it is tokenized again."""
    letters = tuple(range(32, 58))
    return toy_request(f"r{seed}", (5,), max_tokens=60, temperature=1.0, seed=seed, allowed_token_ids=letters)


def test_what_one_request_said_is_drafted_for_the_next(toy_model: Path) -> None:
    shared, own = start(toy_model), start(toy_model, shared=False)
    for engine in (shared, own):
        for turn in ("first", "second"):
            again = toy_request(turn, (5,), max_tokens=60, temperature=1.0, seed=4, ignore_eos=True)
            run_requests(engine, [again])
    assert shared.metrics.num_accepted_tokens > 40 > own.metrics.num_accepted_tokens


def test_the_hooks_share_one_index(toy_model: Path) -> None:
    engine = start(toy_model)
    run_requests(engine, [toy_request("a", (1, 2, 3), max_tokens=7, ignore_eos=True)])
    found = metrics(engine)
    assert found["specserve_ngram_indexed_tokens",] == 10
    assert found["specserve_ngram_index_bytes",] > 0
    assert found["specserve_ngram_requests",] == found["specserve_ngram_generations_evicted_total",] == 0
    assert [found["specserve_ngram_corpora", state] for state in ("loading", "ready", "failed")] == [0, 0, 0]


def test_a_corpus_given_at_start_up_is_drafted_from(toy_model: Path, tmp_path: Path) -> None:
    request = capitals(seed=3)
    plain = run(toy_model, [request])
    text = HfTokenizer.from_dir(toy_model).decode(plain.tokens()[request.request_id])
    (tmp_path / "said.txt").write_text(text)
    engine = start(toy_model, corpora={"said": str(tmp_path / "said.txt")})
    deadline = time.monotonic() + 60
    while metrics(engine)["specserve_ngram_corpora", "ready"] != 1:
        assert time.monotonic() < deadline, metrics(engine)
        time.sleep(0.01)
    spoken = run_requests(engine, [request])
    assert spoken.decided() == plain.decided()
    assert metrics(engine)["specserve_ngram_corpus_tokens",] == 60
    assert spoken.metrics.num_accepted_tokens > 40
    assert run_requests(start(toy_model), [request]).metrics.num_accepted_tokens < 20


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"corpora": {"a": "/no/such/file"}}, r"ngram\.corpora\.a: there is no file '/no/such/file'"),
        ({"corpora": {"a": "/"}}, r"ngram\.corpora\.a: '/' is a directory\. Name a \.jsonl or a text file"),
        ({"corpus_root": "/no/such/place"}, r"ngram\.corpus_root = '/no/such/place' is not a directory"),
        ({"capacity": "10"}, r"ngram\.capacity: must be a whole number from 1000"),
    ],
)
def test_what_cannot_be_served_stops_start_up(toy_model: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        start(toy_model, **options)


def test_every_option_of_matching_reaches_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specserve_ngram.plugin.Index", lambda **given: given)
    values = {"match_type": "prob", "shared": False, "capacity": 2000, "generations": 3, "min_match": 2, "max_match": 9,
              "min_breadth": 2, "max_breadth": 3, "max_depth": 7, "min_survival": 0.5}  # fmt: skip
    assert make_index(NgramOptions(**values)) == values  # type: ignore[arg-type]


@pytest.mark.parametrize("match_type", ["learned", "bfs", "prob"])
def test_the_native_index_takes_what_the_options_allow(match_type: str) -> None:
    widest = {"generations": 2, "max_corpora": 13, "min_match": 32, "max_match": 65_536, "min_breadth": 32,
              "max_breadth": 32, "max_depth": 256, "min_survival": 1.0, "capacity": 10**9}  # fmt: skip
    narrowest = {"generations": 15, "max_corpora": 0, "min_match": 1, "max_match": 1, "min_breadth": 1,
                 "max_breadth": 1, "max_depth": 1, "min_survival": 0.0, "capacity": 1000}  # fmt: skip
    for values in (widest, narrowest):
        assert make_index(NgramOptions(match_type=match_type, **values)).stats()["tokens"] == 0  # type: ignore[arg-type]


def test_each_engine_has_an_index_of_its_own(toy_model: Path) -> None:
    first, second = start(toy_model), start(toy_model)
    run_requests(first, [toy_request("a", (1, 2, 3))])
    assert metrics(second)["specserve_ngram_indexed_tokens",] == 0


def test_it_is_declared_to_work_with_the_template(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "explain", "ngram", "repeat"]) == 0
    assert "ngram works with repeat" in capsys.readouterr().out
    assert main(["plugins", "check", "ngram", "repeat"]) == 0


def test_drafts_stay_within_the_vocabulary_and_the_tables_learn(toy_model: Path) -> None:
    engine = start(toy_model, max_draft_tokens=3)
    requests = [toy_request(str(i), (i % 7, 5, 6), max_tokens=40, logit_bias={6: 20.0}) for i in range(6)]
    done = run_requests(engine, requests)
    assert not done.metrics.drafter_faults
    assert max(max(output.tokens) for output in done.outputs.values()) < TOY_VOCAB
    assert done.metrics.num_accepted_tokens > 100
    assert max(done.metrics.accepted_per_position) <= 2


def test_its_constants_load_no_torch_and_no_native_code() -> None:
    program = "import sys, specserve_ngram.compat; print({'torch', 'specserve_ngram._native'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_its_class_is_made_without_arguments() -> None:
    assert NgramPlugin().plugin_options() is NgramOptions
