"""What the plugin declares, and that an engine starts and serves with it."""

from __future__ import annotations

import subprocess
import sys


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


def test_it_is_installed_and_without_problems() -> None:
    done = run("-m", "specserve", "plugins", "check", "repeat")
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_loads_and_serves() -> None:
    done = run("-m", "specserve", "plugins", "check", "--load", "repeat")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stdout


def test_its_declarations_load_no_torch() -> None:
    done = run("-c", "import sys, repeat_plugin.compat; print('torch' in sys.modules)")
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
