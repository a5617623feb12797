"""The chat template that a server has: of the model's files or a file of its own, and refused where it is wrong."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

import pytest
from fake_engine import FakeEngine
from tiny_tokenizer import write_model_dir

from specserve.config import EngineConfig
from specserve.errors import ConfigError, ModelError
from specserve.text.tokenizer import HfTokenizer
from specserve_server.app.run import serve
from specserve_server.cli import generate
from specserve_server.cli.layers import load_engine_config
from specserve_server.commands import layers
from specserve_server.commands.serve import register
from specserve_server.config import ServerConfig
from specserve_server.templates.before_loading import check_template
from specserve_server.templates.model_template import read_model_template

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MESSAGES = [{"role": "user", "content": "hi"}]


def rewritten(name: str, **fields: Any) -> Callable[[Path], object]:
    return lambda path: (path / name).write_text(json.dumps({**json.loads((path / name).read_text()), **fields}))


def template(text: str) -> Callable[[Path], object]:
    return lambda path: (path / "chat_template.jinja").write_text(text)


WRONG = {
    "special token": (rewritten("tokenizer_config.json", bos_token=5), "bos_token must be a text, an object .*; got 5"),
    "named twice": (
        rewritten("tokenizer_config.json", chat_template=[{"name": "a", "template": "x"}] * 2),
        "chat_template must be a text, a list of {name, template} with names of their own",
    ),
    "no template": (rewritten("tokenizer_config.json", chat_template=5), "chat_template must be .*; got 5"),
    "syntax": (template("a\n{% for x in %}"), "chat template is not valid: line 2: .*Correct it"),
    "another file": (
        template("\n\n{% include 'a.jinja' %}"),
        "line 3 reads another template, and a chat",
    ),
    "macros elsewhere": (template("{% from 'a' import b %}"), "line 1 reads another template"),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_file_the_place_and_what_to_do_are_told(tmp_path: Path, name: str) -> None:
    damage, said = WRONG[name]
    write_model_dir(tmp_path)
    damage(tmp_path)
    for engine in (EngineConfig(model=str(tmp_path)), EngineConfig(tokenizer=str(tmp_path))):
        with pytest.raises(ConfigError, match=said):
            check_template(engine, None)
    with pytest.raises(ConfigError, match=said):
        read_model_template(tmp_path)


def test_another_chat_template_is_rendered(toy_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.jinja"
    file.write_text("[{{ messages[0].content }}]")
    for directory in (toy_model, None):
        template = read_model_template(directory, str(file))
        assert template.render(MESSAGES) == "[hi]"
        assert template.source == "[{{ messages[0].content }}]"


@pytest.mark.parametrize(
    ("content", "message"), [(None, "is not readable"), (b"{% if %}", "not valid"), (b"\xff", "is not readable")]
)
def test_a_template_that_cannot_be_read_stops_start_up(
    toy_model: Path, tmp_path: Path, content: bytes | None, message: str
) -> None:
    file = tmp_path / "mine.jinja"
    if content is not None:
        file.write_bytes(content)
    for model in (str(toy_model), "some-org/to-be-downloaded"):
        with pytest.raises(ConfigError, match=message):
            check_template(EngineConfig(model=model), str(file))
    with pytest.raises(ConfigError, match=message):
        read_model_template(toy_model, str(file))


def test_the_template_of_a_model_that_is_to_be_downloaded_is_not_looked_for() -> None:
    check_template(EngineConfig(model="some-org/to-be-downloaded"), None)


async def test_a_server_renders_the_file_that_it_was_given(connect: Any, engine: FakeEngine, tmp_path: Path) -> None:
    file = tmp_path / "mine.jinja"
    file.write_text("[{{ messages[0].content }}]")
    client = await connect(engine, chat_template=str(file))
    response = await client.post("/v1/chat/completions", json={"messages": MESSAGES, "max_tokens": 1})
    assert response.status == 200
    assert engine.tokenizer.decode(engine.submitted[-1].prompt_token_ids) == "[hi]"
    assert (await (await client.get("/tokenizer_info")).json())["chat_template"] == file.read_text()


async def test_an_engine_without_files_has_no_template(connect: Any, tokenizer: HfTokenizer) -> None:
    client = await connect(FakeEngine(HfTokenizer(tokenizer._rust)))
    response = await client.post("/v1/chat/completions", json={"messages": MESSAGES})
    error = (await response.json())["error"]
    assert (response.status, error["param"]) == (400, "messages")
    assert error["message"].startswith("this model has no chat template; use /v1/completions, or add ")


async def test_an_engine_whose_template_is_wrong_is_stopped_and_the_server_ends(tmp_path: Path) -> None:
    write_model_dir(tmp_path)
    template("{% for")(tmp_path)
    engine = FakeEngine(HfTokenizer.from_dir(tmp_path))

    async def start() -> FakeEngine:
        return engine

    with pytest.raises(ModelError, match="chat template is not valid"):
        await serve(start, ServerConfig(port=0))  # type: ignore[arg-type]
    assert len(engine.stopped) == 1


async def test_the_configuration_that_is_shown_has_the_file_beside_the_tokenizer(
    connect: Any, engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "describe", lambda: {"model": "m", "config": EngineConfig()})
    file = tmp_path / "mine.jinja"
    file.write_text("[{{ messages[0].content }}]")
    fingerprints = set()
    for given in (None, str(file)):
        client = await connect(engine, chat_template=given)
        shown = (await (await client.get("/v1/plugins")).json())["engine"]["config"]
        names = list(shown)
        assert names[names.index("tokenizer") + 1] == "chat_template"
        assert shown.pop("chat_template") == given
        assert list(shown) == list(EngineConfig.__struct_fields__)
        answer = await client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1})
        fingerprints.add((await answer.json())["system_fingerprint"])
    assert len(fingerprints) == 2


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        ("[engine]\nchat_template = 'a'\n", (), "a"),
        ("[server]\nchat_template = 'b'\n", (), "b"),
        ("[engine]\nchat_template = 'a'\n[server]\nchat_template = 'b'\n", (), "b"),
        ("[engine]\nchat_template = 'a'\n", ("--chat-template", "c"), "c"),
        ("[engine]\nblock_size = 8\n", (), None),
    ],
)
def test_a_file_may_name_it_for_the_server_or_as_it_did_for_the_engine(
    tmp_path: Path, text: str, flags: tuple[str, ...], expected: str | None
) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(text)
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    configuration = layers.load_configuration(parser.parse_args(["serve", "--config", str(file), *flags]))
    assert configuration.server.chat_template == expected
    assert configuration.engine.block_size in (8, EngineConfig().block_size)


@pytest.mark.parametrize("table", ["engine", "server"])
def test_generate_takes_the_servers_file(tmp_path: Path, table: str) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(f"[{table}]\nchat_template = 'a'\n")
    parser = argparse.ArgumentParser()
    generate.register(parser.add_subparsers())
    args = parser.parse_args(["generate", "x", "--config", str(file)])
    args.model = None
    assert load_engine_config(args) == EngineConfig()
