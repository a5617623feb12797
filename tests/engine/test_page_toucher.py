"""Pages of the KV cache are allocated by a thread of their own: all of them, and only while no step runs."""

from __future__ import annotations

import ctypes
import threading
import time

import pytest
import torch

from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve.host_memory import HUGE_PAGE, allocate_pages
from specserve.kv import page_toucher
from specserve.kv.cache import KVCache
from specserve.kv.page_toucher import PageToucher, pages_of
from specserve.memory import zeros_in_huge_pages
from specserve_workbench.testing.engines import DEFAULTS

PAGE = 4096
CPU = torch.device("cpu")


def resident(address, size):
    """Pages of 4 KiB in memory, and how many there are."""
    flags = (ctypes.c_ubyte * (size // PAGE))()
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), flags) == 0
    return sum(flag & 1 for flag in flags), len(flags)


def new_cache(megabytes=64):
    return KVCache(
        num_layers=4, num_blocks=megabytes * 2**20 // (4 * 2 * 16 * 2 * 64 * 2), block_size=16, num_kv_heads=2,
        head_dim=64, dtype=torch.bfloat16, device=CPU,
    )  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def needs_the_system_call():
    data = zeros_in_huge_pages((1,), (HUGE_PAGE,), torch.uint8, CPU)
    if not allocate_pages(data.data_ptr(), HUGE_PAGE):
        pytest.skip("this system cannot allocate pages ahead")


def test_all_pages_are_allocated_and_keep_what_is_in_them():
    cache = new_cache()
    cache.data[1, 0, 5] = 3
    assert len(cache.host_areas()) == 8
    assert sum(size for _, size in cache.host_areas()) == 64 * 2**20
    toucher = PageToucher(cache.host_areas(), lambda: False)
    before = [resident(*area) for area in cache.host_areas()]
    assert all(present < total for present, total in before)
    toucher.start()
    toucher.thread.join(timeout=30)
    assert all(present == total for present, total in (resident(*area) for area in cache.host_areas()))
    assert cache.data[1, 0, 5].eq(3).all()
    cache.data[1, 0, 5] = 0
    assert not cache.data.any()


def test_the_first_pages_of_all_layers_come_first():
    areas = [(0, 3 * HUGE_PAGE), (100 * HUGE_PAGE, 2 * HUGE_PAGE + 4096)]
    first, second = 0, 100
    assert [(address // HUGE_PAGE, size) for address, size in pages_of(areas)] == [
        (first, HUGE_PAGE), (second, HUGE_PAGE), (first + 1, HUGE_PAGE), (second + 1, HUGE_PAGE),
        (first + 2, HUGE_PAGE), (second + 2, 4096),
    ]  # fmt: skip
    assert list(pages_of([])) == []


def test_it_waits_while_the_engine_has_work_and_can_be_stopped_then():
    cache, busy = new_cache(), threading.Event()
    busy.set()
    toucher = PageToucher(cache.host_areas(), busy.is_set)
    toucher.start()
    time.sleep(0.05)
    assert resident(*cache.host_areas()[-1])[0] == 0
    toucher.stop()
    assert not toucher.thread.is_alive()
    assert resident(*cache.host_areas()[-1])[0] == 0


@pytest.mark.parametrize("reason", ["too little memory", "no such system call"])
def test_it_ends_where_pages_cannot_be_had(monkeypatch, reason):
    if reason == "too little memory":
        monkeypatch.setattr(page_toucher, "free_pages_memory", lambda: page_toucher.LEAST_FREE - 1)
    else:
        monkeypatch.setattr(page_toucher, "allocate_pages", lambda address, size: False)
    cache = new_cache()
    toucher = PageToucher(cache.host_areas(), lambda: False)
    toucher.start()
    toucher.thread.join(timeout=30)
    assert not toucher.thread.is_alive()
    assert resident(*cache.host_areas()[-1])[0] == 0


def test_a_small_cache_has_no_areas_and_needs_no_thread():
    toucher = PageToucher(new_cache(megabytes=1).host_areas(), lambda: False)
    toucher.start()
    toucher.stop()
    assert toucher.thread.ident is None


async def test_a_server_has_its_cache_allocated_soon_and_stops(toy_model):
    engine = await AsyncEngine.start(EngineConfig(model=str(toy_model), **DEFAULTS))
    engine.pages.thread.join(timeout=30)
    areas = engine.engine.parts.cache.host_areas()
    assert areas
    assert all(present == total for present, total in (resident(*area) for area in areas))
    await engine.stop()
    assert not engine.pages.thread.is_alive()
