"""What the plugin declares, and that an engine starts and serves with it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from specserve_server.cli import main


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


def test_it_is_installed_and_without_problems() -> None:
    done = run("-m", "specserve", "plugins", "check", "repeat")
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_loads_and_serves(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["plugins", "check", "--load", "repeat"])
    told = capsys.readouterr()
    assert code == 0, told.out + told.err
    assert "warning" not in told.out


def test_its_declarations_load_no_torch() -> None:
    done = run("-c", "import sys, repeat_plugin.compat; print('torch' in sys.modules)")
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
