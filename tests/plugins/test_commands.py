"""Commands come from whatever is installed; one that cannot be used breaks no other."""

from __future__ import annotations

import subprocess
import sys

import pytest

from absent import SERVER, run_without
from specserve_server.cli import build_parser, main

RUN_PLUGINS = """
import argparse
from specserve_workbench.commands import plugins
parser = argparse.ArgumentParser()
plugins.register(parser.add_subparsers())
args = parser.parse_args()
sys.exit(args.run(args))
"""


@pytest.fixture
def add_command(tmp_path, monkeypatch):
    """A distribution with the command `greet`, whose module has this source."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def add(source: str, name: str = "greet") -> None:
        (tmp_path / "greetings.py").write_text(source)
        info = tmp_path / "greetings-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greetings\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[specserve.commands]\n{name} = greetings\n")

    yield add
    sys.modules.pop("greetings", None)


GREET = """
EXAMPLES = (("specserve greet", "say hello"),)
def register(subparsers):
    subparsers.add_parser("greet", help="greet").set_defaults(run=lambda args: print("hello") or 0)
"""


def test_a_distribution_may_bring_a_command(add_command, capsys):
    add_command(GREET)
    assert main(["greet"]) == 0
    assert capsys.readouterr().out == "hello\n"
    assert "  specserve greet                             say hello" in build_parser().format_help()


def test_a_command_that_cannot_be_imported_breaks_no_other(add_command, capsys):
    add_command("import no_such_module")
    assert main(["plugins", "list"]) == 0
    assert main(["greet", "--loudly", "you"]) == 2
    error = capsys.readouterr().err
    assert "greetings brings the command greet, greetings, which cannot be used: ModuleNotFoundError" in error
    assert "no_such_module" in error


def test_a_module_that_is_no_command_breaks_no_other(add_command, capsys):
    add_command("EXAMPLES = ()")
    assert main(["plugins", "list"]) == 0
    assert main(["greet"]) == 2
    assert (
        "which cannot be used: AttributeError: module 'greetings' has no attribute 'register'"
        in capsys.readouterr().err
    )


def test_no_distribution_replaces_a_built_in_command(add_command, capsys):
    add_command(GREET.replace("greet", "generate"), name="generate")
    with pytest.raises(SystemExit):
        main(["generate", "--help"])
    assert "Complete one prompt" in capsys.readouterr().out


def run_where_import_fails(module: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.modules[{module!r}] = None; from specserve.__main__ import main; sys.exit(main())"
    return subprocess.run([sys.executable, "-c", program, "serve"], capture_output=True, text=True, check=False)


def test_a_command_line_that_cannot_be_imported_is_one_line_that_says_whose_it_is():
    done = run_where_import_fails("specserve_server")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "error: specserve brings the command line, specserve_server.cli:main, which cannot be used: " in line
    assert "ModuleNotFoundError" in line


def test_the_server_says_which_command_of_its_own_cannot_be_used():
    done = run_where_import_fails("specserve_server.commands.serve")
    assert done.returncode == 2
    assert "specserve brings the command serve" in done.stderr


def test_the_workbench_loads_plugins_without_the_server():
    done = run_without(SERVER, RUN_PLUGINS, "plugins", "check", "ngram", "--load")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "ok."), done.stderr
