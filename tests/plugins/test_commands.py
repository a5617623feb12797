"""Commands come from whatever is installed; the core has one of its own and misses nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from specserve.cli import build_parser, main

SERVER = ("specserve_server", "aiohttp", "prometheus_client")
RUN_WITHOUT = """
import sys
sys.modules.update(dict.fromkeys({absent!r}))
from specserve.cli import main
sys.exit(main(sys.argv[1:]))
"""


def run_without(absent: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in a process that cannot import these."""
    program = RUN_WITHOUT.format(absent=absent)
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)


def run_core_alone(*arguments: str) -> subprocess.CompletedProcess[str]:
    """With no other distribution of ours than the core, the demo model and plugins."""
    return run_without((*SERVER, "specserve_workbench"), *arguments)


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


def test_no_distribution_replaces_a_command_of_the_core(add_command, capsys):
    add_command(GREET.replace("greet", "generate"), name="generate")
    with pytest.raises(SystemExit):
        main(["generate", "--help"])
    assert "Complete one prompt" in capsys.readouterr().out


def test_the_core_generates_alone():
    done = run_core_alone("generate", "def add(a, b):", "--max-tokens", "8", "--temperature", "0", "--threads", "1")
    assert done.returncode == 0, done.stderr
    whole = subprocess.run(
        [sys.executable, "-m", "specserve", "generate", "def add(a, b):", "--max-tokens", "8", "--temperature", "0"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == whole.stdout
    assert done.stdout.strip()


def test_the_core_alone_says_what_its_missing_commands_need():
    done = run_core_alone("serve")
    assert done.returncode == 2
    assert "specserve brings the command serve" in done.stderr


def test_the_workbench_loads_plugins_without_the_server():
    done = run_without(SERVER, "plugins", "check", "ngram", "--load")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "ok."), done.stderr


def test_doctor_says_that_there_is_no_server():
    done = run_without(SERVER, "doctor", "--no-self-test", "--port", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no server is installed" in done.stdout
