"""`specserve bench sweep`, with the demo model and as little load as there may be."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from specserve_server.cli.layers import read_toml


def sweep(*words):
    command = [sys.executable, "-m", "specserve", "bench", "sweep", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)


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
    assert all(run["summary"]["output_tokens"] == 8 * 48 for run in found["runs"])
    assert "acceptance" in found["runs"][2]["summary"]
    engine = read_toml(path)["engine"]
    assert (engine["model"], engine["threads"]) == ("demo", 1)
    assert engine.get("plugins", []) == found["recommended"]
    assert found["why"] in path.read_text()


def test_a_model_that_cannot_be_served_is_told_before_anything_is_measured(tmp_path):
    done = sweep(str(tmp_path / "nothing"))
    assert done.returncode == 2
    assert "nothing" in done.stderr
