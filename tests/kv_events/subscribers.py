"""Subscribers that read the format as its readers do: typed after vLLM's description, or as plain msgpack."""

from __future__ import annotations

import msgspec
import zmq

SECONDS = 5000
"""Milliseconds that a message may take."""


class KvEvent(msgspec.Struct, tag=True):
    pass


class BlockStored(KvEvent):
    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[object, ...] | None] | None = None


class BlockRemoved(KvEvent):
    block_hashes: list[int | bytes]
    medium: str | None


class AllBlocksCleared(KvEvent):
    pass


class KvEventBatch(msgspec.Struct, array_like=True):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int


DECODER = msgspec.msgpack.Decoder(KvEventBatch)


class Subscriber:
    """Applies the events that it gets, by the plugin's 64-bit hashes."""

    def __init__(self, context, endpoint, topic=b""):
        self.socket = context.socket(zmq.SUB)
        self.socket.connect(endpoint)
        self.socket.subscribe(topic)
        self.known = set()
        self.sequences = []

    def receive(self, milliseconds=SECONDS):
        """The next batch, decoded; None where none comes."""
        if not self.socket.poll(milliseconds):
            return None
        _, sequence, payload = self.socket.recv_multipart()
        self.sequences.append(int.from_bytes(sequence, "big"))
        batch = DECODER.decode(payload)
        for event in batch.events:
            self.apply(event)
        return batch

    def apply(self, event):
        if isinstance(event, BlockStored):
            assert len(event.token_ids) == len(event.block_hashes) * event.block_size
            self.known |= set(event.block_hashes)
        elif isinstance(event, BlockRemoved):
            self.known -= set(event.block_hashes)
        else:
            self.known.clear()

    def receive_until(self, sequence):
        while not self.sequences or self.sequences[-1] < sequence:
            assert self.receive() is not None, f"batch {sequence} did not come, only {self.sequences[-3:]}"


def ask_for_replay(context, endpoint, start):
    """The batches from this number on, as (number, payload), of a REQ-like client."""
    dealer = context.socket(zmq.DEALER)
    dealer.connect(endpoint)
    dealer.send_multipart([b"", start.to_bytes(8, "big")])
    batches = []
    while True:
        assert dealer.poll(SECONDS), "the replay does not end"
        empty, sequence, payload = dealer.recv_multipart()
        assert empty == b""
        number = int.from_bytes(sequence, "big", signed=True)
        if number == -1:
            assert payload == b""
            dealer.close()
            return batches
        batches.append((number, payload))
