"""Which adapters are evicted, over a reader that a test controls."""

from __future__ import annotations

from typing import Any

import pytest
from fake_disk import Disk, store_over

from specserve_lora.errors import AdapterCapacityError, AdapterReloadError


@pytest.fixture
def disk() -> Disk:
    return Disk()


def loaded(store: Any) -> set[str]:
    return set(store.loaded)


def test_the_least_recently_used_is_evicted_and_loaded_again(disk):
    store = store_over(disk)
    for name in "ab":
        store.load(name, disk.write(name))
    store.unpin(store.pin("a"))
    store.load("c", disk.write("c"))
    assert loaded(store) == {"a@v1", "c@v1"}
    assert set(store.names()) == {"a", "b", "c"}
    pin = store.pin("b")
    assert pin.id == "b@v1"
    assert loaded(store) == {"b@v1", "c@v1"}
    assert (store.num_loads, store.num_evictions) == (4, 2)
    store.unpin(pin)
    store.check_integrity()


def test_memory_is_a_limit_too(disk):
    store = store_over(disk, max_loaded=10, max_memory=100)
    for name in "abc":
        store.load(name, disk.write(name, size=30))
    store.load("d", disk.write("d", size=80))
    assert loaded(store) == {"d@v1"}
    assert store.num_bytes() == 80


def test_pinned_adapters_are_not_evicted_and_the_option_is_named(disk):
    store = store_over(disk)
    pins = []
    for name in "ab":
        store.load(name, disk.write(name))
        pins.append(store.pin(name))
    with pytest.raises(
        AdapterCapacityError, match=r"requests use 2 of 2 in memory\. lora\.max_loaded allows 2"
    ) as caught:
        store.load("c", disk.write("c"))
    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (429, "adapters_full", 1)
    assert set(store.names()) == {"a", "b"}
    assert disk.reads == 2, "nothing is read where no adapter can be evicted"
    store.unpin(pins[0])
    store.load("c", disk.write("c"))
    with pytest.raises(AdapterCapacityError):
        store.load("d", disk.write("d", size=995))
    assert loaded(store) == {"b@v1", "c@v1"}


def test_replacing_evicts_what_is_replaced(disk):
    store = store_over(disk)
    for name in "ab":
        store.load(name, disk.write(name))
    pin = store.pin("b")
    store.load("a", disk.write("a", "v2"), replace=True)
    assert loaded(store) == {"a@v2", "b@v1"}
    store.load("a", disk.write("a", "v3"), replace=True)
    assert loaded(store) == {"a@v3", "b@v1"}
    store.unpin(pin)


def test_replacing_spares_one_that_was_used_longer_ago(disk):
    store = store_over(disk)
    for name in "ba":
        store.load(name, disk.write(name))
    store.load("a", disk.write("a", "v2"), replace=True)
    assert loaded(store) == {"a@v2", "b@v1"}
    assert store.num_evictions == 0


def test_one_that_was_evicted_and_deleted_cannot_be_loaded_again_and_says_why(disk):
    store = store_over(disk, max_loaded=1)
    store.load("a", disk.write("a"))
    store.load("b", disk.write("b"))
    del disk.content["a"]
    with pytest.raises(
        AdapterReloadError, match="a was evicted and cannot be loaded again: there is no file a"
    ) as caught:
        store.pin("a")
    assert caught.value.status == 503
    disk.write("a", "v7")
    assert store.pin("a").id == "a@v7"
