"""What is written is what readers of vLLM's KV events read, in both forms."""

from __future__ import annotations

import msgspec
import pytest
from subscribers import DECODER, AllBlocksCleared, BlockRemoved, BlockStored

from specserve.protocols import BlocksRemoved, BlocksStored, CacheCleared
from specserve_kv_events.wire import make_writer

HASHES = tuple(bytes(8) + n.to_bytes(8, "big") for n in (2**63 + 1, 7))
PARENT = b"\xff" * 8 + (9).to_bytes(8, "big")


def stored(**changes):
    fields = {"hashes": HASHES, "parent": PARENT, "token_ids": (1, 2, 3, 4), "adapter": "", "cache_salt": None}
    return BlocksStored(**(fields | changes))


def written(encoding, *changes):
    return make_writer(encoding, 2).write(1.5, changes)


def test_events_are_maps_that_vllms_types_decode():
    batch = DECODER.decode(written("map", stored(), BlocksRemoved(hashes=HASHES), CacheCleared()))
    assert (batch.ts, batch.data_parallel_rank) == (1.5, 0)
    assert batch.events == [
        BlockStored([2**63 + 1, 7], 9, [1, 2, 3, 4], 2, None, "GPU", None, None),
        BlockRemoved([2**63 + 1, 7], "GPU"),
        AllBlocksCleared(),
    ]


def test_every_key_is_there():
    """Readers in Go and Rust have no defaults for some."""
    ts, events, rank = msgspec.msgpack.decode(written("map", stored(parent=None)))
    assert events == [
        {
            "type": "BlockStored", "block_hashes": [2**63 + 1, 7], "parent_block_hash": None, "token_ids": [1, 2, 3, 4],
            "block_size": 2, "lora_id": None, "medium": "GPU", "lora_name": None, "extra_keys": None,
        }
    ]  # fmt: skip
    assert (ts, rank) == (1.5, 0)


def test_events_are_arrays_for_older_readers():
    _, events, _ = msgspec.msgpack.decode(written("array", stored(), BlocksRemoved(hashes=HASHES), CacheCleared()))
    assert events == [
        ["BlockStored", [2**63 + 1, 7], 9, [1, 2, 3, 4], 2, None, "GPU", None, None],
        ["BlockRemoved", [2**63 + 1, 7], "GPU"],
        ["AllBlocksCleared"],
    ]


@pytest.mark.parametrize(
    ("changes", "name", "keys"),
    [
        ({"parent": None, "cache_salt": "s"}, None, [["s"], None]),
        ({"cache_salt": "s"}, None, None),
        ({"parent": None, "cache_salt": ""}, None, [[""], None]),
        ({"adapter": "sql@1"}, "sql", [["sql"], ["sql"]]),
        ({"parent": None, "adapter": "sql@1", "cache_salt": "s"}, "sql", [["sql", "s"], ["sql"]]),
    ],
)
def test_extra_keys_are_the_adapter_and_where_a_text_begins_its_salt(changes, name, keys):
    _, (event,), _ = msgspec.msgpack.decode(written("map", stored(**changes)))
    assert (event["lora_name"], event["extra_keys"]) == (name, keys)
