"""`specserve bench sweep`, with the demo model and as little load as there may be."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path

import pytest

from process_table import command_line, descendants
from specserve.config import EngineConfig
from specserve_bench.client.records import RequestRecord
from specserve_bench.figures.summary import summarise
from specserve_bench.sweep.cells import Cell, settings_of
from specserve_bench.sweep.finish import finish
from specserve_bench.sweep.measure import Measurement, Plan, Sweep, is_enough
from specserve_server.cli.layers import read_toml

PLAN = Plan(EngineConfig(), ("ngram",), settings_of(("ngram",)), [Cell(1, 0.0)], 2, 6, "completions", ("code",), 8)


def command(*words):
    return [sys.executable, "-m", "specserve", "bench", "sweep", *words]


def sweep(*words):
    return subprocess.run(command(*words), capture_output=True, text=True, check=False, timeout=500)


@pytest.mark.sweep
def test_every_setting_is_measured_and_one_is_recommended(tmp_path):
    path = tmp_path / "found.toml"
    load = ("--concurrency", "1", "4", "--temperature", "0", "--rounds", "1", "--max-tokens", "48")
    done = sweep("demo", "--plugin", "ngram", "--threads", "1", *load, "--write", str(path), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert [(tuple(run["drafters"]), run["concurrency"]) for run in found["runs"]] == [
        *(((), 1), ((), 4)),
        *((("ngram",), 1), (("ngram",), 4)),
    ]
    assert {run["round"] for run in found["runs"]} == {0}
    assert not found["interrupted"]
    assert [load["concurrency"] for load in found["loads"]] == [1, 4]
    assert [load["noise"] for load in found["loads"]] == [None, None]
    assert all(run["summary"]["output_tokens"] == 16 * 48 for run in found["runs"])
    assert "acceptance" in found["runs"][2]["summary"]
    engine = read_toml(path)["engine"]
    assert (engine["model"], engine["threads"]) == ("demo", 1)
    assert engine.get("plugins", []) == found["recommended"]
    assert found["why"] in path.read_text().replace("\n# ", " ")


def test_an_interrupted_sweep_shows_what_it_has_and_says_that_it_is_a_part(tmp_path):
    """The terminal sends SIGINT to all processes of a command."""
    files = ("--report", str(tmp_path / "part.html"), "--write", str(tmp_path / "found.toml"))
    load = ("--concurrency", "1", "--temperature", "0", "--max-tokens", "8")
    words = command("demo", "--plugin", "ngram", "--threads", "1", *load, *files, "--json")
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            wait_for_setting(process, "ngram")
            os.killpg(process.pid, signal.SIGINT)
            output, errors = process.communicate(timeout=60)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode, errors) == (130, "specserve: interrupted: partial, 1 of 2 runs.\n")
    found = json.loads(output)
    assert (found["interrupted"], found["recommended"], found["toml"]) == (True, None, None)
    (run,) = found["runs"]
    assert run["drafters"] == []
    assert run["summary"]["output_tokens_per_second"] > 0
    assert "partial, 1 of 2 runs" in (tmp_path / "part.html").read_text()
    assert not (tmp_path / "found.toml").exists()


def wait_for_setting(process, name):
    """Until the server of this setting was started: what came before was measured."""
    while not any(f"# {name}\n" in config for config in configurations(process.pid)):
        assert process.poll() is None
        time.sleep(0.05)


def configurations(pid):
    """Of the servers below it: what their files say."""
    for each in descendants(pid):
        if file := re.search(r"--config (\S+)", command_line(each)):
            with suppress(FileNotFoundError):
                yield Path(file[1]).read_text()


@pytest.mark.parametrize(
    ("ngram", "expected"),
    [
        ([150, 150, 150, 150, 150, 150], 2),  # the least
        ([101, 101, 101, 101, 101, 101], 2),  # as fast as no drafter
        ([190, 60, 110, 110, 110, 110], 6),  # the most
        ([104, 120, 112, 112, 112, 112], 3),  # once 12 % are more than chance
    ],
)
def test_rounds_follow_while_chance_decides_and_no_more_than_allowed(ngram, expected):
    off = [100] * 6
    found, count = [], 0
    while not count or not is_enough(PLAN, count, found):
        for setting, rates in zip(PLAN.settings, (off, ngram), strict=True):
            found.append(Measurement(count, setting, PLAN.cells[0], run_of(rates[count])))
        count += 1
    assert count == expected


def run_of(rate):
    """A second of it."""
    return summarise([RequestRecord(number=0, kind="code", sent=0.0, first=0.1, last=1.0, num_tokens=rate)], 1.0)


def shown(capsys, found, num_rounds, interrupted):
    """Exit code and standard output."""
    code = finish(Namespace(write=None, report=None, json=False), PLAN, Sweep(found, num_rounds, interrupted))
    return code, capsys.readouterr().out


def test_a_part_without_every_setting_shows_its_table_and_recommends_nothing(capsys):
    off = Measurement(0, PLAN.settings[0], PLAN.cells[0], run_of(100))
    code, output = shown(capsys, [off], 1, True)
    assert code == 130
    title, columns, row, *_ = output.splitlines()
    assert title.endswith("one round; partial, 1 of 2 runs")
    assert (columns.split(), row.split()) == (["drafters", "1", "at", "T", "0"], ["off", "100.0"])
    assert output.endswith("Nothing is recommended: not every setting was measured under every load.\n")


def test_a_part_with_every_setting_recommends_one_and_writes_that_it_is_a_part(capsys):
    found = [
        Measurement(0, setting, PLAN.cells[0], run_of(rate))
        for setting, rate in zip(PLAN.settings, (100, 150), strict=True)
    ]
    for interrupted, code in ((True, 130), (False, 0)):
        ended, output = shown(capsys, found, 2 if interrupted else 1, interrupted)
        assert ended == code
        assert "Use ngram under every load." in output
        assert ("\n# Found by `specserve bench sweep`, partial, 2 of 4 runs.\n" in output) == interrupted
        assert output.endswith('plugins = ["ngram"]\n')


def test_a_sweep_that_is_interrupted_at_once_has_nothing_to_show(capsys):
    assert shown(capsys, [], 1, True) == (130, "")


def test_a_model_that_cannot_be_served_is_told_before_anything_is_measured(tmp_path):
    done = sweep(str(tmp_path / "nothing"))
    assert done.returncode == 2
    assert "nothing" in done.stderr
