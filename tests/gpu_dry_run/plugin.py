"""A pytest plugin: tests of CUDA without a GPU, see `test_dry_run`. Loaded by `-p`, before anything of the product."""

from __future__ import annotations

import json
import os
from collections import Counter
from importlib import metadata
from pathlib import Path

import cpu_as_cuda
import pytest
import torch
import twins

from specserve_adaptive import plugin as adaptive
from specserve_workbench.testing import engines
from specserve_workbench.testing.stub_triton import stub_triton


class DryRun:
    """The stub driver, for as long as pytest runs; then what it saw."""

    def __init__(self):
        torch.set_num_threads(1)
        cpu_as_cuda.install()
        hide_distribution("specserve-core")
        adaptive.MEASURE_SECONDS = 0.0  # the times of twins are no device's: two points of the table are enough
        engines.DEFAULTS |= {"default_plugins": True, "no_plugins": ("cpu",)}
        self.context = stub_triton(twins.TWINS)
        self.driver = self.context.__enter__()

    @pytest.fixture
    def stub(self):
        return self.driver

    def pytest_unconfigure(self):
        self.context.__exit__(None, None, None)
        report = {"launches": self.driver.launches, "binaries": Counter(each.name for each in self.driver.binaries)}
        Path(os.environ["GPU_DRY_RUN_REPORT"]).write_text(json.dumps(report))


def hide_distribution(hidden):
    """A GPU machine has the core as a folder on the path, not as an installed distribution."""
    from_name = metadata.Distribution.from_name

    def found(name):
        if name == hidden:
            raise metadata.PackageNotFoundError(name)
        return from_name(name)

    metadata.Distribution.from_name = found


def pytest_configure(config):
    config.pluginmanager.register(DryRun(), "gpu-dry-run")
