"""What the plugin declares, and that an engine starts and serves with it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from specserve.cli import main


def test_it_is_installed_and_without_problems(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "check", "repeat"]) == 0, capsys.readouterr()


def test_it_loads_and_serves(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "check", "--load", "repeat"]) == 0, capsys.readouterr()
    assert "warning" not in capsys.readouterr().out


def test_its_declarations_load_no_torch() -> None:
    program = "import sys, repeat_plugin.compat; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
