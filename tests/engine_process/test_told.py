"""What the engine's process writes to standard error is what one process writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from server_process import ServerProcess


def test_traces_and_choices_are_written_in_the_form_of_the_log(
    start_server: Callable[..., ServerProcess], toy_model: Path
) -> None:
    lines = {}
    for form in ("--engine-process", "--no-engine-process"):
        server = start_server(toy_model, form, "--log-format", "json", "--trace", "drafts", "--plugin", "ngram")
        server.wait_until_ready()
        body = json.dumps({"prompt": "one two one two", "max_tokens": 3, "temperature": 0}).encode()
        with urlopen(Request(f"{server.url}/v1/completions", body), timeout=60) as answer:
            assert answer.status == 200
        assert server.stop() == 0
        written = [json.loads(line) for line in server.log.read_text().splitlines()]
        traced = [{**line, "request": ""} for line in written if line.get("trace") == "drafts"]
        told = [line["message"] for line in written if "logger" in line]
        lines[form] = traced, [text for text in told if " = " in text and not text.startswith("planner")]
    assert lines["--engine-process"] == lines["--no-engine-process"]
    traced, chosen = lines["--engine-process"]
    assert len(traced) >= 2
    assert "lossless = true" in chosen
