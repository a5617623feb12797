"""docs/lora.md is held against the code that it describes; its requests are sent to a server."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer

from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve.plugins.options import convert
from specserve.plugins.settings import parse_settings
from specserve_lora.adapter_dir import CONFIG, WEIGHTS
from specserve_lora.config import MODIFIES_BASE_WEIGHTS, UNSUPPORTED
from specserve_lora.observer import METRICS
from specserve_lora.options import LoraOptions
from specserve_server.app.application import make_app
from specserve_server.cli import build_parser
from specserve_server.config import ServerConfig
from specserve_workbench.testing.engines import DEFAULTS
from toy_adapters import lora_options, write_adapter

DOCS = (Path(__file__).parents[2] / "docs" / "lora.md").read_text()
FIELDS = msgspec.structs.fields(LoraOptions)
COMMANDS = [
    shlex.split(line)
    for block in re.findall(r"^```sh\n(.*?)^```", DOCS, flags=re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


def commands(program: str) -> list[list[str]]:
    found = [words[1:] for words in COMMANDS if words[0] == program]
    assert found
    return found


def test_every_command_is_of_a_kind_that_is_checked_here() -> None:
    assert {words[0] for words in COMMANDS} == {"pip", "specserve", "curl"}


@pytest.mark.parametrize("arguments", commands("specserve"), ids=" ".join)
def test_the_command_line_takes_what_is_shown(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "adapters").mkdir()  # what is not there is refused
    (tmp_path / "demo").symlink_to(Path(__file__).parents[2] / "demo")
    (tmp_path / "sql-adapter").mkdir()
    for name in (CONFIG, WEIGHTS):
        (tmp_path / "sql-adapter" / name).touch()
    monkeypatch.chdir(tmp_path)
    settings = parse_settings(build_parser().parse_args(arguments).set)
    assert convert("lora", LoraOptions, settings["lora"])


def test_what_is_to_be_installed_is_there() -> None:
    for _, path in commands("pip"):
        assert (Path(__file__).parents[2] / path / "pyproject.toml").is_file()


async def test_the_requests_of_the_page_are_served(toy_model: Path, tmp_path: Path) -> None:
    for i, name in enumerate(("sql", "legal-v1", "legal-v2")):
        write_adapter(tmp_path / name, toy_model, seed=i)
    tables = lora_options({"sql": tmp_path / "sql"}, root=str(tmp_path))
    config = EngineConfig(model=str(toy_model), plugins=("lora",), plugin_options=tables, **DEFAULTS)
    app = make_app(await AsyncEngine.start(config), ServerConfig(served_model_name="demo"))
    async with TestClient(TestServer(app)) as client:
        for words in commands("curl"):
            path = words[0].removeprefix("http://127.0.0.1:8000")
            body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
            answer = await client.request("GET" if body is None else "POST", path, json=body)
            assert answer.status == 200, (path, await answer.text())


def test_the_table_has_every_option_with_its_default_in_order() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| (none|`[^`]*`) \|([^|]*)\|", DOCS, flags=re.MULTILINE)
    defaults: list[Any] = [getattr(LoraOptions(), field.name) for field in FIELDS]
    shown = ["none" if value is None else f"`{value}`" for value in defaults]
    assert [row[:2] for row in rows] == [(field.name, default) for field, default in zip(FIELDS, shown, strict=True)]
    ranges = {name: tuple(map(int, text.split(" to "))) for name, _, text in rows if " to " in text}
    assert ranges == {
        field.name: (found[0], found[1])
        for field in FIELDS
        if (found := [int(n) for n in re.findall(r"[gl]e=(\d+)", str(field.type))])
    }


def test_every_metric_has_a_row() -> None:
    for name, _, _ in METRICS:
        assert f"| `{name}" in DOCS


def test_every_refusal_is_named() -> None:
    for field in (*UNSUPPORTED, *MODIFIES_BASE_WEIGHTS):
        assert f"`{field}`" in DOCS
