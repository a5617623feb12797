"""--log-format json and --log-level: every line of a server, whoever writes it."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from specserve_server.app.json_lines import JsonFormatter
from specserve_server.app.log_lines import log_to_stderr

if TYPE_CHECKING:
    from pathlib import Path

NOISY = """
import logging, sys, threading, warnings
from specserve_server.cli import main
from specserve.engine import async_engine

load = async_engine.load

class Unraisable:
    def __del__(self):
        raise ValueError("in __del__")

def noisy_load(config, extra, progress):
    warnings.warn("a library warns")
    own = logging.getLogger("library_with_a_handler")  # as huggingface_hub's
    own.addHandler(logging.StreamHandler())
    own.propagate = False
    logging.getLogger("library").error("two\\nlines")
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    Unraisable()
    return load(config, extra, progress)

async_engine.load = noisy_load
from specserve_server.operations import info

def failing(*arguments):
    logging.getLogger("library_with_a_handler").warning("it was imported while loading")
    raise ZeroDivisionError("in a route")

info.list_models = failing
sys.exit(main(["serve", *sys.argv[1:]]))
"""


def test_every_line_of_a_server_is_json(toy_model: Path) -> None:
    flags = [
        "--no-engine-process",  # the program above changes what this process loads
        "--log-format",
        "json",
        "--access-log",
        "text",
        "--port",
        "0",
        "--trace",
        "hooks,drafts",
        "--kv-memory",
        "8M",
    ]
    command = [sys.executable, "-c", NOISY, str(toy_model), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        url = ready["message"].removeprefix("ready on ")
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{url}/v1/models", timeout=60)
        body = json.dumps({"model": str(toy_model), "prompt": "a", "max_tokens": 2}).encode()
        posted = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
        assert urllib.request.urlopen(posted, timeout=60).status == 200
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    lines: list[dict[str, Any]] = [json.loads(line) for line in err.splitlines()]
    assert (process.returncode, out) == (0, "")
    assert ready.keys() == {"time", "level", "logger", "message"}
    said = {line["message"]: line for line in lines if "message" in line}
    assert {"two\nlines", "it was imported while loading", f"model = {toy_model}"} <= said.keys()
    assert any("a library warns" in message for message in said)
    assert {line["trace"] for line in lines if "trace" in line} == {"hooks", "drafts"}
    assert "ZeroDivisionError" in said["ZeroDivisionError: division by zero"]["traceback"]
    assert "in __del__" in said["ValueError: in __del__"]["traceback"]
    failed = said["a request failed"]
    assert "in a route" in failed["traceback"]
    access = said["GET /v1/models 500"]
    assert (access["level"], access["logger"], access["status"]) == ("INFO", "specserve.access", 500)
    assert access["id"] == failed["request_id"]
    assert said["draining for at most 30 s; signal again to abort"]["level"] == "INFO"


@pytest.mark.parametrize("where", ["flag", "file"])
def test_why_a_server_does_not_start_is_json(where: str, tmp_path: Path) -> None:
    flags = ["--log-format", "json"]
    if where == "file":
        (tmp_path / "serve.toml").write_text('[server]\nlog_format = "json"\n')
        flags = ["--config", str(tmp_path / "serve.toml")]
    command = [sys.executable, "-m", "specserve", "serve", "nosuchmodel", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, json.loads(line)["level"]) == (2, "ERROR")
    assert "no model 'nosuchmodel'" in json.loads(line)["message"]


@pytest.mark.parametrize(
    ("level", "written"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_the_level_says_what_is_written(
    level: str, written: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])  # as in a process that begins
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr(logging, "captureWarnings", lambda on: None)
    log_to_stderr(level)
    library = logging.getLogger(f"library_at_{level}")  # loggers remember what is enabled
    for name in ("debug", "info", "warning", "error"):
        getattr(library, name)(name)
    assert [line.rpartition(": ")[2] for line in capsys.readouterr().err.splitlines()] == written


def test_a_line_has_the_stack_where_one_was_asked_for() -> None:
    record = logging.LogRecord("one", logging.INFO, "", 0, "%s", ("text",), None, None, "the stack")
    line = json.loads(JsonFormatter().format(record))
    assert (line["message"], line["traceback"], line["level"]) == ("text", "the stack", "INFO")
