"""`specserve bench replay`: drafters of plugins on texts, and the harness that replays them."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

from specserve.config import EngineConfig
from specserve.errors import ConfigError
from specserve_bench.replay.harness import replay
from specserve_bench.replay.plugin_drafter import DrafterFactory
from specserve_bench.replay.read_texts import Lengths, read_texts
from specserve_bench.replay.run import COLD, WARM, Runner
from specserve_server.cli import main

ROOT = Path(__file__).parents[2]
LINE = [5, 6, 7, 8, 9, 10, 11, 12]


class Letters:
    """A tokenizer: a token for each letter."""

    def encode(self, text):
        return [ord(letter) for letter in text]


def texts(*paths, prompt=4, output=100):
    return read_texts(paths, Letters(), Lengths(prompt, output))


def test_a_text_is_cut_into_prompt_and_output(tmp_path):
    (tmp_path / "a.py").write_text("abcdefgh")
    (tmp_path / "empty").mkdir()
    (trace,) = texts(tmp_path, output=3)
    assert (trace.name, trace.kind) == ("a.py", "py")
    assert (trace.prompt, trace.output) == (Letters().encode("abcd"), Letters().encode("efg"))


def test_lines_have_their_own_prompts(tmp_path):
    path = tmp_path / "logs.jsonl"
    path.write_text('{"prompt": "ab", "output": "cd"}\n\n{"prompt": "", "output": "xy", "kind": "sql", "name": "q"}\n')
    first, second = texts(path)
    assert (first.name, first.kind, first.prompt) == ("logs:1", "logs", [97, 98])
    assert (second.name, second.kind, second.output) == ("q", "sql", [120, 121])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"prompt": "x"}', r"a\.jsonl:1: Object missing required field `output`"),
        ("a.txt", b"\xff\xfe\x00", "is no text that can be read"),
        ("a.txt", b"abc", "more than 4 tokens"),
    ],
)
def test_what_cannot_be_replayed_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        texts(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="nowhere is no text"):
        texts(tmp_path / "nowhere")


def test_a_drafter_without_a_memory_of_others_learns_within_a_text():
    drafter = DrafterFactory(EngineConfig(), "ngram", 100).make()
    stats = replay(drafter, LINE * 4, LINE * 8, 8)
    assert stats.num_tokens == 64
    assert stats.num_steps < 20
    assert stats.num_accepted == 64 - stats.num_steps


def test_it_is_the_drafter_that_the_engine_would_call():
    """The same drafts as from the index directly, as the benchmarks call it."""
    sys.path.append(str(ROOT))
    direct = runpy.run_path(str(ROOT / "benchmarks" / "replay" / "ngram.py"))["variants"]()[0].make()
    ours = DrafterFactory(EngineConfig(plugin_options={"ngram": {"shared": False}}), "ngram", 100).make()
    text = [*LINE, 20, *LINE, 21, *LINE[:5], 22, *LINE]
    one, other = (replay(each, text[:9], text[9:], 8) for each in (direct, ours))
    for figure in ("num_steps", "num_drafted", "num_accepted", "bins"):
        assert getattr(one, figure) == getattr(other, figure)
    assert one.num_accepted > 0


def test_drafters_that_need_a_model_are_refused():
    config = EngineConfig(plugins=("eagle",), plugin_options={"eagle": {"model": "demo-eagle3"}})
    with pytest.raises(ConfigError, match=r"eagle cannot be replayed.*bench sweep"):
        DrafterFactory(config, "eagle", 100)


def test_one_drafter_for_all_texts_knows_the_earlier_ones(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("the quick brown fox jumps over the lazy dog, and runs home again. " * 2)
    runner = Runner(EngineConfig(), ("ngram",), [tmp_path], 3, 100)
    cold, warm = runner.replay([8], lambda _: None)
    assert (cold.setting, warm.setting) == (COLD, WARM)
    assert warm.total.num_steps < cold.total.num_steps
    assert warm.total.num_tokens == cold.total.num_tokens


def test_the_command_prints_every_figure(tmp_path, capsys):
    (tmp_path / "a.py").write_text("x = 1\nprint(x)\n" * 30)
    assert main(["bench", "replay", str(tmp_path), "--budgets", "4", "--json", "--prompt-tokens", "9"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["runs"]
    assert (row["drafter"], row["budget"], row["kind"]) == ("ngram", 4, "py")
    assert row["tokens_per_step"] == pytest.approx(row["num_tokens"] / row["num_steps"])
    assert row["tokens_per_step"] > 2
