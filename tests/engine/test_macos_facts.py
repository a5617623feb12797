"""The processor and the memory of a machine without Linux's files, as macOS tells them."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

import pytest

from fake_macos import serve_facts
from specserve.host_memory import available_memory, total_memory
from specserve.processor import processor_name
from specserve.sysctl import sysctl, sysctl_number, sysctl_text

if TYPE_CHECKING:
    from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
ALL = os.sysconf("SC_PHYS_PAGES") * PAGE
BRAND = "machdep.cpu.brand_string"


def test_numbers_of_both_widths_and_texts_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    serve_facts(monkeypatch, {BRAND: "Apple M4", "hw.memsize": (2**34).to_bytes(8, "little"), "hw.ncpu": 10})
    assert (sysctl_text(BRAND), sysctl_number("hw.memsize"), sysctl_number("hw.ncpu")) == ("Apple M4", 2**34, 10)
    assert (sysctl("hw.ncpu"), sysctl("unknown")) == (b"\n\0\0\0", b"")


def test_what_the_system_does_not_know_is_neither_a_text_nor_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    serve_facts(monkeypatch, {})
    assert (sysctl_text(BRAND), sysctl_number("hw.ncpu")) == ("", None)


@pytest.mark.skipif(platform.system() != "Linux", reason="other systems have the call")
def test_linux_has_no_such_call() -> None:
    assert (sysctl_text(BRAND), sysctl_number("hw.ncpu")) == ("", None)


def test_a_processor_has_the_name_that_macos_gives_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    serve_facts(monkeypatch, {BRAND: "Apple M4"})
    assert processor_name(tmp_path) == "Apple M4"
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU\n")
    assert processor_name(tmp_path) == "Some CPU"


def test_a_processor_without_a_name_has_that_of_its_architecture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve_facts(monkeypatch, {})
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert processor_name(tmp_path) == "arm64"


def test_free_memory_is_that_of_free_pages_and_of_pages_of_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve_facts(monkeypatch, {"vm.page_free_count": 1000, "vm.page_pageable_external_count": 500})
    assert available_memory(tmp_path) == 1500 * PAGE
    assert total_memory(tmp_path) == ALL


def test_half_of_all_memory_counts_as_free_where_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve_facts(monkeypatch, {"vm.page_free_count": 1000})
    assert available_memory(tmp_path) == ALL // 2


def test_linux_estimates_what_is_free(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  4000 kB\nMemFree:  1 kB\nMemAvailable:  3000 kB\n")
    assert (available_memory(tmp_path), total_memory(tmp_path)) == (3000 * 1024, 4000 * 1024)
