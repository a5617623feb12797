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

from triton_runs import COMPILED, needs_triton

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
GPU_TESTS = sorted((ROOT / "tests" / "gpu").glob("test_*.py"))


LONG = (
    "graphs_and_drafts or demo_model or two-layers or mtp or standalone or eagle-trees or eagle-chains or "
    "eagle3-chains or tokens_per_second or plain-sdpa or (accepted_as_often and eagle3)"
)
"""Tables, whole generations of the demo model, and further kinds of draft models, which call nothing that others do
not."""
RUNS = {
    "gpu": (GPU_TESTS, ("-m", "gpu", "-k", f"not ({LONG})")),
    "long": (GPU_TESTS, ("-m", "gpu", "-k", LONG)),
    "facts": ([HERE / f"{name}.py" for name in ("facts_of_binaries", "recorded_steps", "recorded_mixers")], ("-m", "")),
}


def outcome_of(name, report):
    """What pytest said, in a process of its own: what is replaced there stays replaced."""
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "tests" / "gpu" / "pytest.ini", "-p", "plugin", "-q"]
    command += ["-p", "specserve_workbench.testing.fixtures"]
    files, arguments = RUNS[name]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH")))),
        "GPU_DRY_RUN_REPORT": str(report),
        "OMP_NUM_THREADS": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TRITON_CACHE_DIR": str(COMPILED),
    }
    run = subprocess.run(
        [*command, *arguments, *files], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@needs_triton
@pytest.mark.parametrize("run", ["gpu", pytest.param("long", marks=pytest.mark.sweep)])
def test_every_test_for_a_device_passes_but_for_what_only_a_device_has(run, tmp_path):
    text = outcome_of(run, tmp_path / "report.json")
    report = json.loads((tmp_path / "report.json").read_text())
    skipped = [line for line in text.splitlines() if line.startswith("SKIPPED")]
    expected = ("flashinfer", "cupy", "there is no device to trace")
    assert all(any(reason in line for reason in expected) for line in skipped), skipped
    assert report["launches"]["attend_kernel"] > 100, "the kernels' launches were reached"


@needs_triton
def test_what_must_stay_true_of_the_binaries_and_of_recorded_steps(tmp_path):
    assert " passed" in outcome_of("facts", tmp_path / "report.json")
