"""`specserve completion`: what a shell offers, and the groups of `serve --help`, which have every flag."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from specserve_server.cli import build_parser, main
from specserve_server.commands.completion import SHELLS, completion_script
from specserve_server.commands.serve import GROUPS

if TYPE_CHECKING:
    from pathlib import Path

OFFERED = """
source {script}
COMP_WORDS=(specserve {words}) COMP_CWORD={position} COMP_LINE="specserve {words}"
_shtab_specserve
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "specserve.bash"
    path.write_text(completion_script(build_parser(), "bash"))
    return path


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("comp", {"completion"}),
        ("plugins m", {"matrix"}),
        ("completion ''", set(SHELLS)),
        ("serve --tls-", {"--tls-cert", "--tls-key", "--tls-ca"}),
        ("serve --access-log ''", {"none", "text", "json"}),
        ("serve --plugin gram", {"grammar"}),
        ("serve --frob", {""}),
    ],
)
def test_bash_offers_commands_flags_and_values(bash_script: Path, words: str, offered: set[str]) -> None:
    commands = OFFERED.format(script=bash_script, words=words, position=len(words.split()))
    done = subprocess.run(["bash", "--norc", "-c", commands], capture_output=True, text=True, check=True)
    assert set(done.stdout.splitlines()) == offered


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_offers_files_where_a_flag_takes_one(bash_script: Path, tmp_path: Path) -> None:
    (tmp_path / "cert.pem").touch()
    commands = OFFERED.format(script=bash_script, words=f"serve --tls-cert {tmp_path}/ce", position=3)
    done = subprocess.run(["bash", "--norc", "-c", commands], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"{tmp_path}/cert.pem"]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_has_every_flag_and_is_valid(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("max-requests-per-minute", "generate", "grammar"):
        assert word in script
    if shutil.which(shell):
        file = tmp_path / "script"
        file.write_text(script)
        subprocess.run([shell, "-n", file], check=True)


def test_without_shtab_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "pip install 'specserve[completion]'" in capsys.readouterr().err


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["completion", "cmd"])
    assert "bash" in capsys.readouterr().err


def test_help_shows_every_flag_of_serve_under_its_subject(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["serve", "--help"])
    help = capsys.readouterr().out
    titles = re.findall(r"(?m)^([a-z][a-z ]*):$", help)
    assert titles == ["positional arguments", "options", *GROUPS]
    for title, flag in {
        "network": "--uds",
        "security": "--tls-cert",
        "limits": "--request-timeout",
        "logging": "--access-log",
        "model": "--served-model-name",
        "engine": "--block-size",
        "plugins": "--plugin",
    }.items():
        assert f"\n  {flag} " in help.partition(f"\n{title}:")[2].partition("\n\n")[0]
    assert re.findall(r"(?m)^  --", help.partition("options:")[2].partition("network:")[0]) == []
