"""`specserve plugins new`: every kind passes its own tests and checks as it is written."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from fake_site import write_distribution

from specserve.cli import main
from specserve.scaffold.write_plugin import KINDS

CLANG_FORMAT = Path(__file__).parents[2] / ".clang-format"


def new(folder: Path, name: str, kind: str) -> Path:
    assert main(["plugins", "new", name, f"--{kind}", "--into", str(folder)]) == 0
    return folder / f"{name.replace('_', '-')}-plugin"


def install(site: Path, *plugins: Path) -> dict[str, str]:
    """Built by pip where there is something to build, else their entry points as pip writes them; returns the
    environment in which they are found."""
    for plugin in plugins:
        if (plugin / "CMakeLists.txt").exists():
            run("pip", "install", "-q", "--no-build-isolation", "--no-deps", "--target", site, plugin)
            continue
        project = tomllib.loads((plugin / "pyproject.toml").read_text())["project"]
        write_distribution(site, project["name"], project["entry-points"])
    pure = [plugin for plugin in plugins if not (plugin / "CMakeLists.txt").exists()]
    paths = [str(site), *(str(plugin / "src") for plugin in pure)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


def run(*command: object, **options: object) -> str:
    arguments = [str(part) for part in (sys.executable, "-m", *command)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_passes_its_own_tests(kind, tmp_path, capsys):
    plugin = new(tmp_path, f"my_{kind}", kind)
    assert "next: cd" in capsys.readouterr().out
    (site := tmp_path / "site").mkdir()
    environment = install(site, plugin)
    said = run("pytest", "-q", "-p", "no:cacheprovider", cwd=plugin, env=environment)
    assert " passed" in said
    assert " skipped" not in said


def test_new_plugins_are_well_typed_and_in_good_style(tmp_path):
    plugins = [new(tmp_path, f"my_{kind}", kind) for kind in KINDS]
    (site := tmp_path / "site").mkdir()
    environment = install(site, *plugins)
    sources = [plugin / "src" / f"my_{kind}_plugin" for plugin, kind in zip(plugins, KINDS, strict=True)]
    tests = {path.name: path for plugin in plugins for path in (plugin / "tests").glob("*.py")}  # one of what all have
    files = [*sources, *tests.values()]
    run("mypy", "--strict", "--cache-dir", tmp_path / "cache", *files, cwd=tmp_path, env=environment)
    for plugin in plugins:
        run("ruff", "check", "--no-cache", ".", cwd=plugin)
        run("ruff", "format", "--no-cache", "--check", ".", cwd=plugin)
    formatter = ["clang-format", "--dry-run", "--Werror", f"--style=file:{CLANG_FORMAT}"]
    sources = [*tmp_path.glob("*/native/*.[ch]pp")]
    assert len(sources) == 2
    subprocess.run([Path(sys.executable).with_name(formatter[0]), *formatter[1:], *sources], check=True)


def test_all_new_plugins_run_together_where_they_can(tmp_path):
    plugins = [new(tmp_path, f"my_{kind}", kind) for kind in KINDS]
    (site := tmp_path / "site").mkdir()
    environment = install(site, *plugins)
    names = [f"my_{kind}" for kind in KINDS if kind in ("drafter", "routes", "processor", "planner")]
    for first, second in (names[:2], [names[0], names[2]]):
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
