"""`specserve plugins new`: every kind passes its own tests and checks as it is written."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest
from fake_site import write_distribution
from stated_plugin import state_compatibility
from type_checks import check_types

from native_builds import kept
from specserve_server.cli import main
from specserve_workbench.scaffold.write_plugin import KINDS

CLANG_FORMAT = Path(__file__).parents[2] / ".clang-format"


def new(folder: Path, name: str, kind: str) -> Path:
    assert main(["plugins", "new", name, f"--{kind}", "--into", str(folder)]) == 0
    return folder / f"{name.replace('_', '-')}-plugin"


def install(site: Path, *plugins: Path) -> dict[str, str]:
    """Their entry points as pip writes them; returns the environment in which they are found. What is to be built is
    built by pip."""
    native = [plugin for plugin in plugins if (plugin / "CMakeLists.txt").exists()]
    pure = [plugin for plugin in plugins if plugin not in native]
    for plugin in pure:
        project = tomllib.loads((plugin / "pyproject.toml").read_text())["project"]
        write_distribution(site, project["name"], project["entry-points"])
    paths = [site, *(plugin / "src" for plugin in pure), *map(built, native)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"}


def built(plugin: Path) -> Path:
    """Where pip installed it, now or when it last was the same."""

    def build(folder: Path) -> None:
        run("pip", "install", "-q", "--no-build-isolation", "--no-deps", "--target", folder, plugin)

    files = [path for path in sorted(plugin.rglob("*")) if path.is_file()]
    state = [(str(path.relative_to(plugin)), path.read_bytes()) for path in files]
    tools = [metadata.version(name) for name in ("nanobind", "scikit-build-core")]
    return kept("new-native-plugin", [], [*state, *tools, sys.version], build)


def run(*command: object, **options: object) -> str:
    arguments = [str(part) for part in (sys.executable, "-m", *command)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


class Made(NamedTuple):
    plugins: dict[str, Path]
    """By kind."""
    environment: dict[str, str]
    """Where all are installed."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("made")
    plugins = {kind: new(folder, f"my_{kind}", kind) for kind in KINDS}
    (site := folder / "site").mkdir()
    return Made(plugins, install(site, *plugins.values()))


def test_what_to_do_next_is_said(tmp_path, capsys):
    new(tmp_path, "mine", "drafter")
    assert "next: cd" in capsys.readouterr().out


@pytest.fixture(scope="module")
def said(made: Made) -> dict[str, str]:
    """By their own tests, by kind."""
    alone = made.environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # those of the dev group take two seconds
    program = Path(__file__).with_name("own_tests.py")
    subprocess.run([sys.executable, program, *made.plugins.values()], env=alone, check=False)
    return {kind: (plugin / "said.txt").read_text() for kind, plugin in made.plugins.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_passes_its_own_tests(kind, said):
    last = said[kind].splitlines()[-1]
    assert re.fullmatch(r"\d+ passed in .*", last), said[kind]


def test_new_plugins_are_well_typed_and_in_good_style(made, tmp_path):
    sources = [plugin / "src" / f"my_{kind}_plugin" for kind, plugin in made.plugins.items()]
    tests = {path.name: path for plugin in made.plugins.values() for path in (plugin / "tests").glob("*.py")}
    files = [*sources, *tests.values()]  # one of what all have
    check_types(files, tmp_path, made.environment)
    for plugin in made.plugins.values():
        run("ruff", "check", "--no-cache", ".", cwd=plugin)
        run("ruff", "format", "--no-cache", "--check", ".", cwd=plugin)
    formatter = ["clang-format", "--dry-run", "--Werror", f"--style=file:{CLANG_FORMAT}"]
    native = [*made.plugins["native"].glob("native/*.[ch]pp")]
    assert len(native) == 2
    subprocess.run([Path(sys.executable).with_name(formatter[0]), *formatter[1:], *native], check=True)


def test_a_new_plugin_declares_nothing_that_its_author_has_not_stated(tmp_path):
    for kind in KINDS:
        plugin = new(tmp_path, f"my_{kind}", kind)
        groups = tomllib.loads((plugin / "pyproject.toml").read_text())["project"]["entry-points"]
        assert groups[f"specserve.compatible.my_{kind}"] == {}
        compat = runpy.run_path(str(plugin / "src" / f"my_{kind}_plugin" / "compat.py"))
        assert [name for name in compat if not name.startswith("__")] == []


def test_new_plugins_run_together_where_their_authors_say_so(tmp_path):
    kinds = ("drafter", "routes", "processor", "planner")
    plugins = {f"my_{kind}": new(tmp_path, f"my_{kind}", kind) for kind in kinds}
    for name, plugin in plugins.items():
        state_compatibility(plugin, name)
    (site := tmp_path / "site").mkdir()
    environment = install(site, *plugins.values())
    names = [*plugins]
    for first, second in (names[:2], [names[0], names[2]], [names[0], names[3]]):
        said = run("specserve", "plugins", "check", first, second, cwd=tmp_path, env=environment)
        assert said.splitlines()[-1] == "ok."


@pytest.mark.parametrize("name", ["My-Drafter", "class", "builtin", "9lives", ""])
def test_a_name_that_cannot_be_one_is_refused(name, tmp_path, capsys):
    assert main(["plugins", "new", name, "--into", str(tmp_path)]) == 2
    assert f"got {name!r}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path, capsys):
    plugin = new(tmp_path, "mine", "drafter")
    before = {path: path.read_text() for path in plugin.rglob("*") if path.is_file()}
    assert main(["plugins", "new", "mine", "--planner", "--into", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert {path: path.read_text() for path in plugin.rglob("*") if path.is_file()} == before


def test_a_name_that_is_taken_is_said(tmp_path, capsys):
    assert main(["plugins", "new", "ngram", "--into", str(tmp_path)]) == 0
    assert "specserve-plugin-ngram, which is installed, has a plugin ngram, too" in capsys.readouterr().out
