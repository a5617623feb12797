"""`make demo`: run as it is run, and what it does where something is wrong."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any

import pytest

import demo_colours
import demo_stream
import run_demo
from demo_requests import CODE

COMMAND = [sys.executable, run_demo.__file__, "--threads", "1"]
FIRST_LINE = re.compile(r"demo: ready on (http://\S+) after [\d.]+ s\n")
SPEEDS = re.compile(r"demo: (\d+) tokens at \d+ tokens/s without and \d+ tokens/s with drafts: \d+\.\d\dx\n")
ACCEPTED = re.compile(r"demo: mean acceptance length (\d+\.\d\d), (\d+) of (\d+) drafted tokens accepted(.*)\n")
EAGLE = ("--plugin", "eagle", "--set", "eagle.model=demo-eagle3")
"""As the Makefile has it."""


def run(*options: str, **environ: str) -> str:
    """What the demo printed; without colours but where FORCE_COLOR asks for them."""
    settings = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    ended = subprocess.run(
        [*COMMAND, *options], env=settings | environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return ended.stdout


def coloured(code: int, out: str) -> list[str]:
    return re.findall(rf"\x1b\[{code}m([^\x1b]*)\x1b\[0m", out)


def test_the_demo_shows_accepted_drafts_and_both_speeds() -> None:
    out = run("--plugin", "ngram", FORCE_COLOR="1")
    assert FIRST_LINE.match(out)
    assert [int(count) for count in SPEEDS.findall(out)] == [case.fields["max_tokens"] for case in CODE]
    assert out.count("demo: both texts are the same, token for token\n") == len(CODE)
    assert out.endswith("demo: the server has stopped\n")
    length, accepted, drafted, shares = ACCEPTED.findall(out)[0]  # of the text that repeats its prompt
    assert float(length) > 1
    assert 10 < int(accepted) <= int(drafted)
    assert shares == ""
    legend, *green = coloured(32, out)
    assert legend == "ngram"
    assert len(green) >= int(accepted) * 0.9  # a token without text has nothing to paint
    for case in CODE:
        assert f"\x1b[2m{case.prompt}\x1b[0m" in out


def test_each_accepted_token_has_the_colour_of_its_drafter() -> None:
    out = run("--plugin", "ngram", *EAGLE, FORCE_COLOR="1")
    assert out.count("demo: both texts are the same, token for token\n") == len(CODE)
    assert "the model confirmed: \x1b[32mngram\x1b[0m, \x1b[36meagle\x1b[0m\n" in out
    counts = [re.fullmatch(r": (\d+) from ngram, (\d+) from eagle", found[3]) for found in ACCEPTED.findall(out)]
    by_ngram, by_eagle = (sum(int(found[place]) for found in counts if found) for place in (1, 2))
    assert by_ngram + by_eagle == sum(int(found[1]) for found in ACCEPTED.findall(out)) > 20
    assert by_ngram * 0.9 <= len(coloured(32, out)) - 1 <= by_ngram
    assert by_eagle * 0.9 <= len(coloured(36, out)) - 1 <= by_eagle


def test_without_a_drafter_the_demo_says_so_and_decodes_plainly() -> None:
    out = run()
    assert "demo: no drafter runs, so this is plain decoding; --plugin ngram brings one\n" in out
    assert len(re.findall(r"demo: \d+ tokens, the first after \d+ ms, then \d+ tokens/s\n", out)) == len(CODE)
    assert "\x1b" not in out
    assert CODE[0].prompt in out


def test_ctrl_c_ends_the_demo_and_its_server() -> None:
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True, start_new_session=True) as demo:
        assert demo.stdout is not None
        ready = FIRST_LINE.match(demo.stdout.readline())
        assert ready
        os.killpg(demo.pid, signal.SIGINT)  # as a terminal sends it: to the whole group
        assert demo.wait(120) == 130
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(ready[1], timeout=60)


async def test_a_text_that_drafts_changed_fails_the_demo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def stream(session: Any, url: str, body: dict[str, Any], show: Any) -> Any:
        text = "right" if not body["speculation"]["enabled"] else "wrong"
        return demo_stream.Streamed(0.0, text=text, token_ids=[1], usage={})

    async def find_drafters(session: Any, url: str) -> list[str]:
        return ["liar"]

    server = "import time; print('specserve: ready on http://nowhere', flush=True); time.sleep(60)"
    monkeypatch.setattr(run_demo, "SPECSERVE", [sys.executable, "-c", server])
    monkeypatch.setattr(run_demo, "stream", stream)
    monkeypatch.setattr(run_demo, "find_drafters", find_drafters)
    assert await run_demo.main(CODE, []) == 1
    assert "drafts changed the text" in capsys.readouterr().err


async def test_a_server_that_dies_is_shown_with_its_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_demo, "SPECSERVE", [sys.executable, "-c", "print('out of luck'); raise SystemExit(3)"])
    assert await run_demo.main(CODE, []) == 1
    err = capsys.readouterr().err
    assert "exit code 3" in err
    assert "out of luck" in err


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("lost", [0, 2])
def test_a_signal_ends_the_demo_though_cancellations_may_be_lost(
    monkeypatch: pytest.MonkeyPatch, ending: int, lost: int
) -> None:
    ended: list[bool] = []

    async def main(cases: object, options: list[str]) -> int:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), ending)
        try:
            for _ in range(lost):
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(600)
            await asyncio.sleep(600)
        finally:
            ended.append(True)
        return 0

    monkeypatch.setattr(run_demo, "main", main)
    before, began = signal.getsignal(ending), time.monotonic()
    try:
        assert run_demo.run([]) == 130
    finally:
        signal.signal(ending, before)
    assert ended == [True]
    assert time.monotonic() - began < 300, "it waited for what it should have cancelled"


def test_events_are_parsed_and_errors_are_raised() -> None:
    assert demo_stream.parse_event(b'data: {"choices": []}\n') == {"choices": []}
    assert demo_stream.parse_event(b"\n") is None
    assert demo_stream.parse_event(b"data: [DONE]\n") is None
    with pytest.raises(demo_stream.DemoError, match="boom"):
        demo_stream.parse_event(b'data: {"error": {"message": "boom"}}\n')


def test_a_chunk_is_cut_where_its_tokens_begin() -> None:
    """The first token of the chunk ends a character that an earlier chunk began; the third has no text yet."""
    chunk = {"text": "ö = 1", "text_offset": [10, 11, 15, 15], "drafted_by": ["a", "b", "a", None]}
    assert list(demo_stream.pieces(chunk, shown=10)) == [("ö", "a"), (" = 1", "b")]
    chunk = {"text": "€)", "text_offset": [15, 16], "drafted_by": [None, "b"]}
    assert list(demo_stream.pieces(chunk, shown=15)) == [("€", None), (")", "b")]


def test_drafters_have_colours_in_the_servers_order_and_the_model_has_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "")
    painter = demo_colours.Painter("abcdefg")
    for drafter in ("b", "a", None, "f", "unknown"):
        painter.show("x", drafter)
    assert capsys.readouterr().out == "\x1b[36mx\x1b[0m\x1b[32mx\x1b[0mx\x1b[32mx\x1b[0mx"
    monkeypatch.setenv("NO_COLOR", "1")
    painter.show("x", "a")
    assert capsys.readouterr().out == "x"


def test_accepted_tokens_are_counted_by_drafter() -> None:
    streamed = demo_stream.Streamed(0.0)
    chunk = {"text": "ab", "text_offset": [0, 0, 1], "drafted_by": ["a", "a", None], "token_ids": [7, 8, 9]}
    streamed.take({"choices": [chunk]}, demo_stream.show_nothing)
    assert streamed.guessed_by == {"a": 2}


def test_speed_is_that_of_decoding() -> None:
    """The first event comes with the prompt."""
    streamed = demo_stream.Streamed(0.0, first=1.0, last=3.0, num_first=1, token_ids=[7] * 11)
    assert streamed.rate == 5.0


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
def test_colours_are_for_terminals_and_for_those_who_ask(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], wanted: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.setenv(name, environ.get(name, ""))
    assert demo_colours.wants_colour() is wanted
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert demo_colours.wants_colour() is ("NO_COLOR" not in environ)
