"""`make gpu-check` without a device: what it says of tests that pass, fail, hang and crash."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specserve.plugins.discovery import discover

CHECK = Path(__file__).parents[1] / "gpu" / "check.py"
MARK = "import pytest, os, time\npytestmark = pytest.mark.gpu\n"


@pytest.fixture(scope="module")
def check():
    sys.path.append(str(CHECK.parent))
    spec = importlib.util.spec_from_file_location("gpu_check", CHECK)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # NamedTuples look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def outcome(check, tmp_path, capsys):
    def run(body, seconds=60):
        file = tmp_path / "test_it.py"
        file.write_text(MARK + body)
        done = check.run(check.Task("it", seconds, (str(file),)), tmp_path, ())
        return done, capsys.readouterr().out

    return run


def test_a_plugin_on_the_path_is_found_as_if_it_were_installed(check, tmp_path):
    check.declare(check.ROOT / "plugins" / "cuda", tmp_path)
    (found,) = discover([str(tmp_path)]).values()
    assert (found.name, found.dist, [*found.provides], found.problems) == (
        "cuda", "specserve-plugin-cuda", ["kernel.cuda"], (),
    )  # fmt: skip


def test_what_passes_is_counted_and_logged(outcome):
    done, _ = outcome("def test_a():\n    print('here')\ndef test_b():\n    pass\n")
    assert (done.good, done.said.split(" in ")[0]) == (True, "2 passed")
    assert "2 passed" in done.log.read_text()


def test_what_fails_is_named(outcome):
    done, printed = outcome("def test_a():\n    assert 0\ndef test_b():\n    pass\n")
    assert not done.good
    assert done.said.startswith("1 failed, 1 passed")
    assert "FAILED" in printed
    assert "test_a" in printed


def test_what_hangs_is_ended(outcome):
    done, _ = outcome("def test_a():\n    time.sleep(999)\n", seconds=2)
    assert (done.good, done.said) == (False, "no end after 2 s")
    assert done.seconds < 500


def test_what_a_hanging_test_started_is_ended_too(outcome, tmp_path, monkeypatch):
    """As the workers of a parallel run are, and what runs under a checker of memory. Its time is over as soon as it has
    started a child, however long that takes."""
    pid_file = tmp_path / "pid"
    body = f"""def test_a():
    import subprocess
    child = subprocess.Popen(["sleep", "997"])
    open({str(tmp_path / "new")!r}, "w").write(str(child.pid))
    os.rename({str(tmp_path / "new")!r}, {str(pid_file)!r})
    child.wait()
"""

    class OutOfTime(subprocess.Popen):
        def wait(self, timeout=None):
            if timeout is not None:
                wait_until(pid_file.exists, "it starts no child")
                raise subprocess.TimeoutExpired(self.args, timeout)
            return super().wait()

    monkeypatch.setattr(subprocess, "Popen", OutOfTime)
    done, _ = outcome(body)
    assert done.said == "no end after 60 s"
    pid = int(pid_file.read_text())
    wait_until(lambda: not is_running(pid), "it still runs")


def wait_until(is_so, otherwise, seconds=120):
    """The seconds are for a machine that does much else."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)


def is_running(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_what_crashes_says_so(outcome):
    done, _ = outcome("def test_a():\n    os._exit(7)\n")
    assert (done.good, done.said) == (False, "exit code 7")


def test_every_part_keeps_its_time_and_its_files_exist(check):
    for part, tasks in check.PARTS.items():
        assert sum(task.seconds for task in tasks) < 8 * 60, part
        assert all((CHECK.parent / task.arguments[0]).exists() for task in tasks if task.is_pytest), part


def test_every_file_for_a_device_is_in_a_part(check):
    run = {task.arguments[0] for tasks in check.PARTS.values() for task in tasks}
    assert {file.name for file in CHECK.parent.glob("test_*.py")} <= run


def test_without_a_device_it_says_so_and_checks_nothing():
    done = subprocess.run([sys.executable, CHECK, "kernels"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "sees no CUDA device here; nothing was checked" in done.stderr
    assert "==" not in done.stdout
