"""Names, versions and pins, over a reader that a test controls."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from fake_disk import Disk, store_over

from specserve_lora.adapter_dir import AdapterDir
from specserve_lora.errors import (
    AdapterConflictError,
    AdapterError,
    UnknownAdapterError,
)
from specserve_lora.pins import Pin


@pytest.fixture
def disk() -> Disk:
    return Disk()


def loaded(store: Any) -> set[str]:
    return set(store.loaded)


def test_a_replaced_version_is_kept_until_its_last_unpin(disk):
    store = store_over(disk)
    store.load("a", disk.write("a"))
    old = store.pin("a"), store.pin("a")
    store.load("a", disk.write("a", "v2"), replace=True)
    new = store.pin("a")
    assert (old[0].id, new.id) == ("a@v1", "a@v2")
    assert store.find("a@v1") is old[0]
    store.unpin(old[0])
    assert store.find("a@v1") is not None
    store.unpin(old[1])
    assert store.find("a@v1") is None
    assert store.find("a@v2") is new
    assert store.num_evictions == 0


def test_the_same_content_again_is_the_same_version(disk):
    store = store_over(disk)
    store.load("a", disk.write("a"))
    pin = store.pin("a")
    store.load("a", disk.write("elsewhere"), replace=True)
    assert store.pin("a") is pin
    assert (pin.num_pins, store.num_loads) == (2, 1)


def test_a_version_that_returns_while_it_is_still_used_is_not_read_twice(disk):
    store = store_over(disk)
    store.load("a", disk.write("a"))
    pin = store.pin("a")
    store.load("a", disk.write("a", "v2"), replace=True)
    store.load("a", disk.write("a", "v1"), replace=True)
    store.unpin(pin)
    assert loaded(store) == {"a@v1"}
    store.check_integrity()


def test_a_replacement_that_fails_leaves_the_old_one(disk):
    store = store_over(disk)
    store.load("a", disk.write("a"))
    with pytest.raises(AdapterError, match="there is no file gone"):
        store.load("a", AdapterDir(Path("gone"), "gone", None), replace=True)
    assert store.pin("a").id == "a@v1"


def test_unloading_an_adapter_in_use_is_refused_with_the_number_of_requests(disk):
    store = store_over(disk)
    store.load("a", disk.write("a"))
    pins = [store.pin("a") for _ in range(3)]
    with pytest.raises(AdapterConflictError, match="a is in use by 3 requests") as caught:
        store.unload("a")
    assert (caught.value.status, caught.value.code) == (409, "adapter_in_use")
    for pin in pins:
        store.unpin(pin)
    store.unload("a")
    assert (store.pin("a"), loaded(store), store.names()) == (None, set(), {})
    with pytest.raises(UnknownAdapterError, match="there is no adapter 'a'"):
        store.unload("a")


@pytest.mark.parametrize(
    "name", ["", "a:b", "a/b", "a b", "a\tb", "a\0b", "a\nb", "\x7f", "x" * 129, "\u00a0", "\u200b"]
)
def test_what_is_no_name_is_refused(disk, name):
    with pytest.raises(AdapterError, match=r"lora_name must be 1 to 128 printable characters"):
        store_over(disk).load(name, disk.write("a"))


def test_names_that_are_taken_are_refused(disk):
    store = store_over(disk)
    store.load("ünïcode.ok-1@x", disk.write("a"))
    with pytest.raises(AdapterConflictError, match=r"is loaded already\. Pass load_inplace: true"):
        store.load("ünïcode.ok-1@x", disk.write("a"))
    with pytest.raises(AdapterConflictError, match="base is the base model's name"):
        store.load("base", disk.write("a"), replace=True)


def test_only_requests_for_an_unloaded_adapter_wait_for_the_disk(disk):
    store = store_over(disk, max_loaded=1)
    store.load("a", disk.write("a"))
    store.load("b", disk.write("b"))
    disk.open.clear()
    disk.reached.clear()
    pins: list[Any] = []
    readers = [threading.Thread(target=lambda: pins.append(store.pin("a"))) for _ in range(8)]
    for reader in readers:
        reader.start()
    assert disk.reached.wait(30)
    pin = store.pin("b")  # would hang if a lock were held
    store.unpin(pin)
    assert store.find("b@v1") is not None
    disk.open.set()
    for reader in readers:
        reader.join(30)
    assert {id(pin) for pin in pins} == {id(pins[0])}
    assert (pins[0].num_pins, disk.reads) == (8, 3)


def test_a_pin_is_released_once(disk):
    store = store_over(disk)
    store.load("a", disk.write("a"))
    pin, other = Pin(store, store.pin("a")), Pin(store, store.pin("a"))
    releases = [threading.Thread(target=pin.release) for _ in range(8)]
    for thread in releases:
        thread.start()
    for thread in releases:
        thread.join()
    assert store.usage() == {"a": 1}
    other.release()
    assert store.usage() == {"a": 0}
