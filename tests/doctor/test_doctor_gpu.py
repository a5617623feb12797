"""CUDA devices that are there, missing, or of another torch: torch's answers are faked."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from found import by_check, statuses

from specserve_workbench.doctor import gpu
from specserve_workbench.doctor.gpu import gpu_rows, is_supported

DRIVER = {"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module  580.95\nGCC version: 12\n"}


@pytest.fixture
def no_device(monkeypatch):
    def is_available():
        warnings.warn("CUDA initialization: the driver is too old", stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", is_available)


@pytest.fixture
def one_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    found = SimpleNamespace(name="Fast One", major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: found)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number=0: (70 * 2**30, 80 * 2**30))
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_80", "sm_90"])


@pytest.fixture
def no_triton(monkeypatch):
    monkeypatch.setattr(gpu, "find_spec", lambda name: None if name == "triton" else find_spec(name))


@pytest.mark.usefixtures("no_device", "no_triton")
def test_what_is_missing_fails_only_where_the_gpu_is_asked_for(make_case):
    assert statuses(gpu_rows(make_case())) == {"driver": "note", "devices": "note", "triton": "note"}
    rows = by_check(gpu_rows(make_case(device="cuda")))
    assert {row.status for row in rows.values()} == {"failed"}
    assert all("--device cpu" in row.advice for row in rows.values())


@pytest.mark.usefixtures("no_device")
def test_a_driver_that_torch_cannot_use_is_explained(make_case, monkeypatch):
    rows = by_check(gpu_rows(make_case(DRIVER)))
    assert (rows["driver"].status, rows["driver"].found) == ("ok", "NVIDIA UNIX Open Kernel Module 580.95")
    assert "the driver is too old" in rows["devices"].found
    monkeypatch.setattr(torch.version, "cuda", None)
    row = by_check(gpu_rows(make_case(DRIVER, device="cuda")))["devices"]
    assert (row.status, row.advice) == ("failed", "install a CUDA build of torch")


@pytest.mark.usefixtures("one_device")
def test_a_device_is_described(make_case):
    rows = by_check(gpu_rows(make_case(DRIVER, device="cuda")))
    assert (rows["device 0"].status, rows["device 0"].found) == ("ok", "Fast One, sm_90, 70.0 GiB free of 80.0 GiB")
    assert "use" not in rows
    assert by_check(gpu_rows(make_case(DRIVER)))["use"].status == "note"


@pytest.mark.usefixtures("one_device")
def test_a_device_that_torch_has_no_code_for_fails(make_case, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_100", "sm_120"])
    assert statuses(gpu_rows(make_case(device="cuda")))["device 0"] == "failed"
    assert statuses(gpu_rows(make_case()))["device 0"] == "warning"


@pytest.mark.parametrize(
    ("device", "built_for", "runs"),
    [
        ((8, 6), ["sm_80"], True),
        ((8, 0), ["sm_86"], False),
        ((9, 0), ["sm_80"], False),
        ((9, 0), ["sm_80", "compute_80"], True),
        ((10, 0), ["sm_100"], True),
        ((9, 0), ["sm_90a"], True),
        ((12, 0), ["compute_120"], True),
        ((9, 0), [], False),
    ],
)
def test_code_runs_on_later_devices_of_its_generation_and_ptx_on_all(device, built_for, runs):
    assert is_supported(*device, built_for) is runs


def test_a_torch_whose_devices_raise_is_a_failed_row(make_case, monkeypatch):
    def raising():
        raise RuntimeError("no such luck")

    monkeypatch.setattr(torch.cuda, "is_available", raising)
    rows = by_check(gpu_rows(make_case()))
    assert rows["devices"].status == "failed"
    assert "no such luck" in rows["devices"].found
    assert "triton" in rows
