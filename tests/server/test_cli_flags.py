"""From flags and files to configuration."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from specserve import __version__
from specserve.command import complete_prompt
from specserve.config import EngineConfig
from specserve.errors import ConfigError
from specserve_server.cli import generate, main
from specserve_server.commands import layers, serve
from specserve_server.config import ServerConfig
from specserve_server.engines import load

if TYPE_CHECKING:
    from pathlib import Path

    from fake_engine import FakeEngine


def parse(*argv: str) -> layers.Configuration:
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    serve.register(subparsers)
    generate.register(subparsers)
    return layers.load_configuration(parser.parse_args(["serve", *argv]))


def test_without_flags_the_configuration_is_the_defaults() -> None:
    assert parse() == layers.Configuration(EngineConfig(), ServerConfig())


def test_flags_reach_their_fields() -> None:
    engine, server = parse(
        *("some/model", "--plugin", "ngram", "--plugin", "lora", "--no-plugin", "cpu", "--set", "ngram.width=8"),
        *("--max-model-len", "100", "--kv-memory", "1G", "--no-prefix-cache", "--allow-undeclared"),
        *("--port", "0", "--api-key", "k", "--strict-fields", "--no-default-plugins"),
    )
    assert (engine.model, engine.plugins, engine.no_plugins) == ("some/model", ("ngram", "lora"), ("cpu",))
    assert (engine.max_model_len, engine.kv_memory, engine.prefix_cache) == (100, "1G", False)
    assert (engine.allow_undeclared, engine.default_plugins) == (True, False)
    assert engine.plugin_options == {"ngram": {"width": "8"}}
    assert (server.port, server.api_key, server.host, server.strict_fields) == (0, ("k",), "127.0.0.1", True)


def test_every_option_of_the_server_has_a_flag() -> None:
    parser = argparse.ArgumentParser()
    serve.register(parser.add_subparsers())
    flags = vars(parser.parse_args(["serve"]))
    for name in ServerConfig.__struct_fields__:
        assert flags[name] is None, "a flag that is not given changes nothing"


def test_a_key_comes_from_the_environment_unless_a_file_or_a_flag_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECSERVE_API_KEY", "from-environment")
    file = tmp_path / "serve.toml"
    file.write_text('[server]\napi_key = ["one", "two"]\n')
    assert parse().server.api_keys == ("from-environment",)
    assert parse("--config", str(file)).server.api_keys == ("one", "two")
    assert parse("--config", str(file), "--api-key", "a", "--api-key", "b").server.api_keys == ("a", "b")
    monkeypatch.setenv("SPECSERVE_API_KEY", "")
    with pytest.raises(ConfigError, match="SPECSERVE_API_KEY"):
        parse()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("none", "none"), ('{"temperature": 0.6, "top_k": 20}', {"temperature": 0.6, "top_k": 20})],
)
def test_sampling_defaults_are_a_word_or_json_or_a_table(tmp_path: Path, text: str, expected: Any) -> None:
    assert parse("--generation-config", text).engine.generation_config == expected
    file = tmp_path / "serve.toml"
    file.write_text("[engine.generation_config]\ntop_p = 0.9\n")
    assert parse("--config", str(file)).engine.generation_config == {"top_p": 0.9}
    assert parse("--config", str(file), "--generation-config", text).engine.generation_config == expected


def test_sampling_defaults_that_are_no_json_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["serve", "--generation-config", '{"temperature": hot}'])
    assert "--generation-config: must be auto, none or a JSON object" in capsys.readouterr().err


def test_flags_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(
        '[engine]\nmodel = "a"\nblock_size = 32\nplugins = ["ngram"]\n[server]\nport = 9\nhost = "::1"\n'
        "[plugins.ngram]\nwidth = 4\ndepth = 5\n"
    )
    engine, server = parse("--config", str(file), "--block-size", "8", "--plugin", "eagle", "--set", "ngram.width=6")
    assert (engine.model, engine.block_size, engine.plugins) == ("a", 8, ("ngram", "eagle"))
    assert engine.plugin_options == {"ngram": {"width": "6", "depth": 5}}
    assert (server.port, server.host) == (9, "::1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[motor]\n", "unknown table"),
        ("[engine]\nspeed = 3\n", "speed"),
        ("[engine]\nblock_size = 'x'\n", "block_size"),
        ("[engine]\nplugins = 'ngram'\n", "plugins"),
        ("engine = 3\n", "must be a table"),
        ("[server]\nport = 99999\n", "port"),
        ("[engine.plugin_options]\n", "plugins.NAME"),
    ],
)
def test_a_wrong_file_is_a_configuration_error(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        parse("--config", str(file))


def test_a_wrong_flag_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="block_size"):
        parse("--block-size", "7")


def test_a_configuration_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{tmp_path} is not readable"):
        parse("--config", str(tmp_path))


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--kv-memory", "inf"),
        ("--threads", "100000"),
        ("--drain-seconds", "-1"),
        ("--drain-seconds", "nan"),
        ("--max-body-bytes", "0"),
        ("--api-key", ""),
        ("--api-key", " k"),
    ],
)
def test_a_value_out_of_range_is_refused(flag: str, value: str) -> None:
    name = flag.removeprefix("--").replace("-", "_")
    with pytest.raises(ConfigError, match=name):
        parse(flag, value)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["serve", "--port", "many"], "--port must be an integer; got 'many'"),
        (["serve", "--frob"], "specserve serve has no option --frob"),
        (["generate"], "PROMPT"),
        (["generate", "a", "b", "c"], "quote a prompt"),
        ([], "COMMAND"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(argv)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("specserve: error: ")
    assert message in line


@pytest.mark.parametrize("flags", [["--max-tokens", "0"], ["--temperature", "nan"], ["--seed", str(2**70)]])
def test_generate_refuses_invalid_sampling_parameters_before_it_loads_a_model(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "no/model/here", "a", *flags]) == 2
    assert flags[0].removeprefix("--").replace("-", "_") in capsys.readouterr().err


def test_python_dash_m_runs_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "specserve", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"specserve {__version__}\n"


def test_characters_that_the_locale_lacks_are_printed_as_question_marks() -> None:
    command = [
        sys.executable,
        "-c",
        "import sys; from specserve_server.cli import main; main(['plugins', 'list']); print('\u00e9')",
    ]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=True)
    assert done.stdout.endswith(b"?\n")


def test_the_banner_leaves_the_configuration_out() -> None:
    lines = load.banner({"model": "demo", "lossless": True, "drafter": None, "config": EngineConfig()})
    assert lines == ["model = demo", "lossless = true", "drafter = null"]


async def test_generate_prints_the_text_and_reports_speculation(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    args = argparse.Namespace(max_tokens=99, temperature=0.0, seed=None)
    any_engine: Any = engine
    request = complete_prompt.make_request(any_engine, "a", args)
    stats = await complete_prompt.print_text(any_engine, request)
    assert capsys.readouterr().out == engine.text + "\n"
    assert stats.num_tokens == len(engine.tokenizer.encode(engine.text))
    assert "mean acceptance length 2.00" in stats.summary()
    assert "tokens/s" in stats.summary()
