"""What the doctor says on macOS, which has none of Linux's files."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from found import by_check

from fake_macos import serve_facts
from specserve import host_memory
from specserve_workbench.doctor.build_tools import build_tool_rows
from specserve_workbench.doctor.interpreter import operating_system
from specserve_workbench.doctor.processor import instructions, name
from specserve_workbench.doctor.system_memory import huge_pages, memory

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from specserve_workbench.doctor.case import Case

M4 = {
    "machdep.cpu.brand_string": "Apple M4",
    "hw.optional.neon": 1,
    "hw.optional.arm.FEAT_DotProd": 1,
    "hw.optional.arm.FEAT_BF16": 1,
    "hw.optional.arm.FEAT_I8MM": 0,
    "vm.page_free_count": 2**20,
    "vm.page_pageable_external_count": 2**20,
}


def test_the_processor_and_its_instructions_are_asked_of_the_system(
    make_case: type[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_facts(monkeypatch, M4)
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    case = make_case({})
    (named,), (told,) = name(case), instructions(case)
    assert named.found == "Apple M4 (arm64)"
    assert told.status == "ok"
    assert told.found.startswith("NEON, ")
    assert "BF16" in told.found
    assert "I8MM" not in told.found


def test_memory_is_told_and_huge_pages_are_none(
    make_case: type[Case], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve_facts(monkeypatch, M4)
    monkeypatch.setattr(host_memory, "HUGE_PAGE_SETTING", tmp_path / "missing")
    case = make_case({})
    (told,), (pages,) = memory(case), huge_pages(case)
    assert " free of " in told.found
    assert (pages.status, pages.advice) == ("note", "")


def test_the_system_and_what_installs_a_compiler_are_those_of_macos(
    make_case: type[Case], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    (system,) = operating_system(make_case({}))
    assert (system.status, "nobody has run specserve on macOS yet" in system.advice) == ("note", True)
    tools = by_check(build_tool_rows(make_case({})))
    assert tools["compiler"].advice.endswith("xcode-select --install")
    assert "apt" not in tools["python headers"].advice
