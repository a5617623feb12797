"""docs/cpu.md and the stub of the native module agree with what they describe."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer
from native_cases import SETS

from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve.plugins.options import convert
from specserve_cpu import _native
from specserve_cpu.options import CpuOptions
from specserve_server.app.application import make_app
from specserve_server.cli import build_parser, main
from specserve_server.commands.layers import load_configuration
from specserve_server.config import ServerConfig
from specserve_server.engines.load import banner
from specserve_workbench.testing.engines import DEFAULTS, make_engine

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "cpu.md").read_text()
ROWS = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", DOCS, flags=re.MULTILINE))
COMMANDS = [
    shlex.split(line)
    for block in re.findall(r"^```sh\n(.*?)^```", DOCS, flags=re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
FIELDS = {field.name: field for field in msgspec.structs.fields(CpuOptions)}
NAMES = [name for name in ROWS if name not in FIELDS]
STUB = ROOT / "plugins" / "cpu" / "src" / "specserve_cpu" / "_native.pyi"


def commands(*first: str) -> list[list[str]]:
    found = [words[1:] for words in COMMANDS if tuple(words[: len(first)]) == first]
    assert found
    return found


def program(*names: str) -> list[list[str]]:
    return [arguments for arguments in commands("specserve") if arguments[0] in names]


def test_the_table_has_every_option_with_its_default() -> None:
    assert {name: ROWS[name] for name in ROWS if name in FIELDS} == {
        name: f"`{field.default}`" for name, field in FIELDS.items()
    }


def test_the_table_has_every_instruction_set_the_fastest_first() -> None:
    source = (ROOT / "plugins" / "cpu" / "native" / "runtime" / "isa.cpp").read_text()
    named = re.findall(r'^ *\{"(\w+)", ', source, flags=re.MULTILINE)
    assert [name for name in named if name != "amx_emulated"] == NAMES
    assert [name for name in NAMES if name in SETS] == [name for name in SETS if name != "amx_emulated"]
    assert f"{', '.join(NAMES[:-1])} or {NAMES[-1]}" in " ".join((STUB.parent / "options.py").read_text().split())


def test_every_command_is_checked_here() -> None:
    assert {words[0] for words in COMMANDS} == {"pip", "specserve", "curl"}
    for paths in commands("pip", "install"):
        assert all((ROOT / path / "pyproject.toml").is_file() for path in paths[1:])


@pytest.mark.parametrize("arguments", program("serve", "generate"), ids=" ".join)
def test_the_command_lines_parse(arguments: list[str]) -> None:
    options = load_configuration(build_parser().parse_args(arguments)).engine.plugin_options
    convert("cpu", CpuOptions, options.get("cpu", {}))


def test_the_command_that_generates_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (arguments,) = program("generate")
    main(arguments)
    assert "20 tokens in " in capsys.readouterr().err


@pytest.mark.parametrize("arguments", program("plugins"), ids=" ".join)
def test_the_plugins_commands_run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert not main(arguments)
    assert "cpu" in capsys.readouterr().out


def test_the_banner_is_as_shown(toy_model: Path) -> None:
    lines = banner(make_engine(toy_model, default_plugins=True).description)
    shown = re.findall(r"^(specserve: .*)$", DOCS, flags=re.MULTILINE)
    here = [line.replace("avx512_bf16", SETS[0]) for line in shown]
    assert here[:2] == [f"specserve: {line}" for line in lines if re.match(r"(kernels|attention) ", line)]


async def test_the_server_describes_what_serves(toy_model: Path) -> None:
    ((url,),) = commands("curl")
    config = EngineConfig(model=str(toy_model), **DEFAULTS | {"default_plugins": True})
    app = make_app(await AsyncEngine.start(config), ServerConfig())
    async with TestClient(TestServer(app)) as client:
        answer: dict[str, Any] = await (await client.get(url.removeprefix("http://127.0.0.1:8000"))).json()
    assert answer["engine"]["kernels"] == f"cpu-{SETS[0]} (cpu)"
    assert answer["engine"]["attention"] == "cpu_paged (cpu)"
    (entry,) = [entry for entry in answer["data"] if entry["name"] == "cpu"]
    assert (entry["enabled"], entry["options"]) == (True, dict.fromkeys(FIELDS, "auto"))


def test_the_links_exist() -> None:
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)#][^)]*)\)", DOCS)]
    assert links
    assert all((ROOT / "docs" / link).is_file() for link in links)


def test_the_stub_names_what_the_module_has() -> None:
    stub = {node.name: node for node in ast.parse(STUB.read_text()).body if hasattr(node, "name")}
    dtype_module = stub.pop("DtypeModule")
    assert {*stub, "float32", "bfloat16"} == public(_native)
    for module in (_native.float32, _native.bfloat16):
        members = {node.name: node for node in dtype_module.body if hasattr(node, "name")}
        assert set(members) == public(module)
        assert_same_members(members, module)
    assert_same_members(stub, _native)


def assert_same_members(stub: dict[str, Any], module: Any) -> None:
    for name, node in stub.items():
        if isinstance(node, ast.ClassDef):
            assert {part.name for part in node.body if hasattr(part, "name")} - {"__init__"} == public(
                getattr(module, name)
            )


def public(thing: Any) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}
