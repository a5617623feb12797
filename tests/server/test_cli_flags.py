"""From flags and files to configuration."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import pytest

from specserve.cli import common, generate, serve
from specserve.config import EngineConfig, ServerConfig
from specserve.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from fake_engine import FakeEngine


def parse(*argv: str) -> common.Configuration:
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    serve.register(subparsers)
    generate.register(subparsers)
    return common.load_configuration(parser.parse_args(["serve", *argv]), serve.SERVER_FIELDS)


def test_nothing_given_is_all_defaults() -> None:
    assert parse() == common.Configuration(EngineConfig(), ServerConfig())


def test_flags_reach_their_fields() -> None:
    engine, server = parse(
        *("some/model", "--plugin", "ngram", "--plugin", "lora", "--no-plugin", "cpu", "--set", "ngram.width=8"),
        *("--max-model-len", "100", "--kv-memory", "1G", "--no-prefix-cache", "--allow-undeclared"),
        *("--port", "0", "--api-key", "k", "--no-default-plugins"),
    )
    assert (engine.model, engine.plugins, engine.no_plugins) == ("some/model", ("ngram", "lora"), ("cpu",))
    assert (engine.max_model_len, engine.kv_memory, engine.prefix_cache) == (100, "1G", False)
    assert (engine.allow_undeclared, engine.default_plugins) == (True, False)
    assert engine.plugin_options == {"ngram": {"width": "8"}}
    assert (server.port, server.api_key, server.host) == (0, "k", "127.0.0.1")


def test_flags_win_over_the_file(tmp_path: Path) -> None:
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


def test_the_banner_leaves_the_long_configuration_out() -> None:
    lines = serve.banner({"model": "demo", "lossless": True, "drafter": None, "config": EngineConfig()})
    assert lines == ["specserve: model = demo", "specserve: lossless = true", "specserve: drafter = null"]


async def test_generate_prints_the_text_and_reports_speculation(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    args = argparse.Namespace(max_tokens=99, temperature=0.0, seed=None)
    any_engine: Any = engine
    request = generate.make_request(any_engine, "a", args)
    report = await generate.print_text(any_engine, request)
    assert capsys.readouterr().out == engine.says + "\n"
    assert report.num_tokens == len(engine.tokenizer.encode(engine.says))
    assert "mean acceptance length 2.00" in report.line()
    assert "tokens/s" in report.line()
