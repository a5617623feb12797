"""The benchmark against other engines, with an EAGLE-3 head in those that take one: what they are asked and given."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.cases.peers import head_options
from benchmarks.lib.workload import PROMPT_LEN, held_out_prompts
from benchmarks.peers.engines import Settings, make_openvino
from benchmarks.peers.workloads import HELD_OUT, WORKLOADS, rows_of

from specserve.models.locate import locate_model
from specserve.text.tokenizer import HfTokenizer


def test_texts_are_ones_that_no_head_was_trained_on_and_none_comes_twice() -> None:
    tokenizer = HfTokenizer.from_dir(locate_model("demo"))
    asked = [workload for workload in WORKLOADS if workload.mode in ("plain", "eagle3")]
    rows = list(rows_of(asked, (1, 2), 2, tokenizer))
    assert sorted(row.name for row in rows) == sorted(
        f"{workload.name}, {count} concurrent" for workload in asked for count in (1, 2)
    )
    every = [tuple(prompt) for row in rows for job in row.jobs for prompt in job["prompts"]]
    assert len(set(every)) == len(every) == 4 * (1 + 2) * 2
    of_heads = [row for row in rows if row.workload.mode == "eagle3"]
    assert {row.workload.text for row in of_heads} == {HELD_OUT}
    prompts = {tuple(prompt) for row in of_heads for job in row.jobs for prompt in job["prompts"]}
    assert prompts == set(held_out_prompts(tokenizer, len(prompts), PROMPT_LEN))


@pytest.mark.parametrize(
    ("model", "head", "options"),
    [
        ("demo", None, {"model": "demo-eagle3"}),
        ("demo", "another", {"model": "another"}),
        ("half-billion", None, {}),
        ("half-billion", "its", {"model": "its"}),
    ],
)
def test_a_model_has_its_own_head_or_the_given_one(model: str, head: str | None, options: dict[str, str]) -> None:
    assert head_options(model, head) == options


def test_engines_get_the_heads_directory_where_they_draft_with_it() -> None:
    settings = Settings("demo", threads=1, eagle=head_options("demo", None))
    assert Path(settings.setup("eagle3", "demo")["eagle"]["model"], "config.json").is_file()
    assert [settings.setup(mode, "demo")["eagle"] for mode in ("plain", "ngram")] == [{}, {}]
    assert make_openvino("eagle3", settings) is None
