"""tests/gpu without a GPU: the CPU as the device, a stub as Triton's driver, and torch in place of the kernels.

The next typo in a test, or in what it calls, is found here and not on a device. Kernels are compiled for sm_90 by
Triton's own dispatcher with the arguments that a device would get, so what is counted and read of them is true of it.
Speed and bits are not checked here: only a device has those.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import background
from triton_runs import needs_triton

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
GPU_TESTS = sorted((ROOT / "tests" / "gpu").glob("test_*.py"))


RUNS = {
    "gpu": (GPU_TESTS, ("-m", "gpu")),
    "facts": ([HERE / "facts_of_binaries.py", HERE / "recorded_steps.py"], ("-m", "")),
}
STARTED: dict[str, background.Background] = {}


def start_in_background(folder):
    """Each in a process of its own: what is replaced there stays replaced."""
    if importlib.util.find_spec("triton") is None:
        return
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "tests" / "gpu" / "pytest.ini", "-p", "plugin", "-q"]
    for name, (files, arguments) in RUNS.items():
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH")))),
            "GPU_DRY_RUN_REPORT": str(folder / f"{name}.json"),
            "OMP_NUM_THREADS": "1",
        }
        STARTED[name] = background.start([*command, *arguments, *files], folder / f"{name}.log", environment)


def outcome_of(name):
    """What pytest said, and the plugin's report."""
    run = STARTED[name]
    text = run.output(timeout=300)
    assert run.process.returncode == 0, text
    return text, json.loads(run.log.with_suffix(".json").read_text())


@needs_triton
def test_every_test_for_a_device_passes_but_for_what_only_a_device_has():
    text, report = outcome_of("gpu")
    skipped = [line for line in text.splitlines() if line.startswith("SKIPPED")]
    expected = ("flashinfer", "cupy", "there is no device to trace")
    assert all(any(reason in line for reason in expected) for line in skipped), skipped
    assert report["launches"]["attend_kernel"] > 100, "the kernels' launches were reached"


@needs_triton
def test_what_must_stay_true_of_the_binaries():
    text, _ = outcome_of("facts")
    assert " passed" in text
