"""tests/gpu without a GPU: the CPU as the device, a stub as Triton's driver, and torch in place of the kernels.

The next typo in a test, or in what it calls, is found here and not on a device. Kernels are compiled for sm_90 by
Triton's own dispatcher with the arguments that a device would get, so what is counted and read of them is true of it.
Speed and bits are not checked here: only a device has those.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from triton_runs import needs_triton

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
GPU_TESTS = sorted((ROOT / "tests" / "gpu").glob("test_*.py"))


class Outcome:
    def __init__(self, process, report):
        self.text = process.communicate()[0]
        self.code = process.returncode
        self.report = json.loads(report.read_text()) if report.exists() else {}


def start(files, folder, *arguments):
    """pytest in a process of its own: what is replaced there stays replaced."""
    report = folder / "report.json"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH")))),
        "GPU_DRY_RUN_REPORT": str(report),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "tests" / "gpu" / "pytest.ini", "-p", "plugin", "-q"]
    process = subprocess.Popen(
        [*command, *arguments, *files], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return process, report


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Both at once, on two cores."""
    started = [
        start(GPU_TESTS, tmp_path_factory.mktemp("gpu"), "-m", "gpu"),
        start([HERE / "facts_of_binaries.py", HERE / "static_memory.py"], tmp_path_factory.mktemp("facts"), "-m", ""),
    ]
    return [Outcome(*each) for each in started]


@needs_triton
def test_every_test_for_a_device_passes_but_for_what_only_a_device_has(runs):
    outcome = runs[0]
    assert outcome.code == 0, outcome.text
    skipped = [line for line in outcome.text.splitlines() if line.startswith("SKIPPED")]
    expected = ("flashinfer", "cupy", "there is no device to trace")
    assert all(any(reason in line for reason in expected) for line in skipped), skipped
    assert outcome.report["launches"]["attend_kernel"] > 100, "the kernels' launches were reached"


@needs_triton
def test_what_must_stay_true_of_the_binaries(runs):
    assert runs[1].code == 0, runs[1].text
    assert " passed" in runs[1].text
