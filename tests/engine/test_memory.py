"""Where the KV cache lies in memory."""

from __future__ import annotations

import errno
import mmap

import pytest
import torch

from specserve import memory
from specserve.memory import HUGE_PAGE, zeros_in_huge_pages

CPU = torch.device("cpu")


def addresses(zeros):
    return [area.data_ptr() for areas in zeros for area in areas]


@pytest.mark.parametrize("num_slots", [4096, 4097, 12_000])
def test_every_area_begins_with_a_huge_page(num_slots):
    """Of 512 bytes a slot: one huge page, a little more, and nearly three."""
    zeros = zeros_in_huge_pages((3, 2), (num_slots, 2, 64), torch.float32, CPU)
    assert zeros.shape == (3, 2, num_slots, 2, 64)
    assert [address % HUGE_PAGE for address in addresses(zeros)] == [0] * 6
    assert all(area.is_contiguous() for areas in zeros for area in areas)


def test_small_areas_are_not_padded():
    zeros = zeros_in_huge_pages((3, 2), (100, 2, 64), torch.bfloat16, CPU)
    assert zeros.is_contiguous()


@pytest.mark.parametrize("num_slots", [100, 4097])
def test_areas_are_zero_and_do_not_overlap(num_slots):
    zeros = zeros_in_huge_pages((2, 2), (num_slots, 2, 64), torch.float32, CPU)
    assert not zeros.any()
    for number, area in enumerate(zeros.flatten(0, 1)):
        area.fill_(number)
    assert [area.unique().tolist() for area in zeros.flatten(0, 1)] == [[0], [1], [2], [3]]


class MappingThatRefuses(mmap.mmap):
    """As of a kernel that was built without huge pages."""

    def madvise(self, *arguments):
        raise OSError(errno.EINVAL, "Invalid argument")


@pytest.mark.parametrize("system", ["macOS", "a kernel without huge pages"])
def test_a_system_without_huge_pages_gives_pages_when_they_are_written(monkeypatch, system):
    """torch's own zeros are written at once."""
    monkeypatch.setattr(torch, "zeros", None)
    if system == "macOS":
        monkeypatch.setattr(memory, "ADVICE", None)
    else:
        monkeypatch.setattr(mmap, "mmap", MappingThatRefuses)
    zeros = zeros_in_huge_pages((2, 2), (5000, 2, 64), torch.float32, CPU)
    assert not zeros.any()
    assert all(area.is_contiguous() for areas in zeros for area in areas)


@pytest.mark.parametrize(("setting", "words"), [
    ("always [madvise] never", "yes"),
    ("[always] madvise never", "yes"),
    ("always madvise [never]", "no ({file}); steps are slower"),
    (None, None),
])  # fmt: skip
def test_the_banner_says_whether_the_cache_has_huge_pages(toy_model, tmp_path, monkeypatch, setting, words):
    from specserve import host_memory
    from specserve.engine import description
    from specserve_workbench.testing.engines import make_engine

    file = tmp_path / "enabled"
    if setting is not None:
        file.write_text(setting)
    for module in (host_memory, description):
        monkeypatch.setattr(module, "HUGE_PAGE_SETTING", file)
    assert make_engine(toy_model).description.get("huge_pages") == (words and words.format(file=file))
    assert "huge_pages" not in make_engine(toy_model, kv_memory="512K").description
