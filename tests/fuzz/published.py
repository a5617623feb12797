"""What an engine published of its prefix cache, read as a subscriber of all batches reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fuzz.failures import Failure
from specserve_kv_events.observers import PublisherMetrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuzz.building import Built
    from specserve_kv_events.publisher import Publisher

FIELDS = ("type", "block_hashes", "parent_block_hash", "token_ids", "block_size")
"""In the order of events that are arrays; those behind them are not read here."""


def publisher_of(built: Built) -> Publisher | None:
    observers = built.engine.parts.observers
    return next((observer.publisher for observer in observers if isinstance(observer, PublisherMetrics)), None)


def check_published(built: Built) -> None:
    """A subscriber knows the blocks that the engine knows. Ends the publisher."""
    publisher = publisher_of(built)
    if publisher is None:
        return
    publisher.stop()  # sends what waits
    known = known_blocks(publisher)
    expected = {int.from_bytes(h[-8:], "big") for h in built.engine.scheduler.pool.by_hash}
    if known != expected:
        text = f"{len(known - expected)} too many, {len(expected - known)} missing, of {len(expected)}"
        raise Failure("a subscriber knows other blocks than the engine", text)


def known_blocks(publisher: Publisher) -> set[int]:
    """Their hashes, after all events. Raises Failure for one that tells what cannot be."""
    known: set[int] = set()
    for event in events(publisher):
        hashes = set(event.get("block_hashes", ()))
        if event["type"] == "BlockStored":
            right = len(event["token_ids"]) == len(hashes) * event["block_size"] and not known & hashes
            known |= hashes
        elif event["type"] == "BlockRemoved":
            right = hashes <= known
            known -= hashes
        else:
            right = event["type"] == "AllBlocksCleared"
            known.clear()
        if not right:
            raise Failure("a wrong KV event", str(event))
    return known


def events(publisher: Publisher) -> Iterator[dict[str, Any]]:
    """In the order of their batches, of which none is missing."""
    for expected, (sequence, payload) in enumerate(publisher.sent):
        if int.from_bytes(sequence, "big") != expected:
            raise Failure("a batch of KV events is missing", f"{expected}, before {int.from_bytes(sequence, 'big')}")
        for event in msgspec.msgpack.decode(payload)[1]:
            yield event if isinstance(event, dict) else dict(zip(FIELDS, event, strict=False))
    if len(publisher.sent) != publisher.next_sequence:
        raise Failure("KV events were not sent", f"{len(publisher.sent)} of {publisher.next_sequence} batches")
