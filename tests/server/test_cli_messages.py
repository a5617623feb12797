"""What the command line says to a wrong command, option, file or environment: one line, in no words of Python's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from specserve_server.cli import main

if TYPE_CHECKING:
    from pathlib import Path

OF_SERVE = "see specserve serve --help."
WRONG = [
    (["serv"], "COMMAND must be one of serve, generate, plugins, doctor, bench, completion; got 'serv'; see specserve "
     "--help."),
    (["serve", "--prt", "5"], f"specserve serve has no option --prt, did you mean --port? {OF_SERVE}"),
    (["serve", "--port", "abc"], f"--port must be an integer; got 'abc'; {OF_SERVE}"),
    (["serve", "--port", "1.5"], f"--port must be an integer; got '1.5'; {OF_SERVE}"),
    (["serve", "--port"], f"--port needs a value behind it; {OF_SERVE}"),
    (["serve", "--sse-keep-alive", "x"], f"--sse-keep-alive must be a number; got 'x'; {OF_SERVE}"),
    (["serve", "--device", "tpu"], f"--device must be one of cpu, cuda; got 'tpu'; {OF_SERVE}"),
    (["serve", "--dtype", "float8"], "--dtype must be one of auto, float32, bfloat16, float16; got 'float8'; "
     f"{OF_SERVE}"),
    (["serve", "--no-prefix-cache=3"], f"--no-prefix-cache takes no value; got '3'; {OF_SERVE}"),
    (["serve", "demo", "b"], f"specserve serve does not take 'b'; quote what has blanks; {OF_SERVE}"),
    (["serve", "--graph-buckets", "a,b"], "--graph-buckets: must be ascending integers with commas, such as 1,2,4,8; "
     f"got 'a,b'; {OF_SERVE}"),
    (["serve", "--generation-config", '{"top_p": "x"}'], "--generation-config: must be auto, none or a JSON object "
     f'such as {{"temperature": 0.6}}: its values must be numbers; got {{"top_p": "x"}}; {OF_SERVE}'),
    (["serve", "--generation-config", "{x"], "--generation-config: must be auto, none or a JSON object such as "
     '{"temperature": 0.6}: a key that is not in double quotes at line 1, column 2, near {x; got {x; ' + OF_SERVE),
    (["plugins", "check", "--foo"], "specserve plugins check has no option --foo; see specserve plugins check --help."),
]  # fmt: skip


@pytest.mark.parametrize(("argv", "message"), WRONG, ids=lambda value: str(value)[:60])
def test_a_wrong_command_line_is_explained(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(argv)
    assert capsys.readouterr().err == f"specserve: error: {message}\n"


@pytest.mark.parametrize("flag", ["--api=SECRET", "--api-kye=SECRET"])
def test_the_value_of_a_misspelled_flag_is_not_shown(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["serve", flag])
    said = capsys.readouterr().err
    assert "--api-key" in said
    assert "SECRET" not in said


FILES = [
    ('[server]\nport = "x"', '[server] port: must be an integer; got "x".'),
    ("[server]\nprot = 5", "[server] prot: there is no such name here; did you mean port?"),
    ('[server]\nhost = ["a"]', '[server] host: must be a string; got ["a"].'),
    ('[server]\nstrict_fields = "yes"', '[server] strict_fields: must be true or false; got "yes".'),
    ("[server]\napi_key = 12345", "[server] api_key: must be a string or a list of strings."),
    ('[server]\napi_key = ["a", 12345]', "[server] api_key[1]: must be a string."),
    ('[engine]\nplugins = "ngram"', '[engine] plugins: must be a list of strings; got "ngram".'),
    ('[engine]\ngraph_buckets = ["a"]', '[engine] graph_buckets[0]: must be an integer; got "a".'),
    ("[engine.model]\nx = 5", '[engine] model: must be a string; got {"x":5}.'),
    ("[engine]\nseed = 2024-01-01", '[engine] seed: must be an integer; got "2024-01-01".'),
    ("[plugins]\nngram = 5", "--config: plugins.ngram must be a table; got 5. Write [plugins.ngram]."),
    ("port = 5", "--config: port is in no table in FILE; use [engine], [server], [plugins.NAME]."),
    ("[servr]\nport = 5", "--config: unknown table [servr] in FILE; use [engine], [server], [plugins.NAME]."),
]


@pytest.mark.parametrize(("text", "message"), FILES, ids=lambda value: str(value)[:60])
def test_a_wrong_configuration_file_is_explained_and_no_key_is_shown(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(text)
    assert main(["serve", "--config", str(file)]) == 2
    assert capsys.readouterr().err == f"specserve: error: {message.replace('FILE', str(file))}\n"
