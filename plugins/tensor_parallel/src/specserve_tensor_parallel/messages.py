"""What rank 0 and the others tell each other, beside the numbers of a pass: msgpack over a socket pair of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from specserve.api import AttentionNeeds, EngineConfig

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class Message(msgspec.Struct, frozen=True, tag=True):
    """Rank 0's are obeyed in order."""


class Load(Message, frozen=True):
    """The first: load your part of this model."""

    rank: int
    ranks: int
    config: EngineConfig
    """Resolved, with a rank's share of threads and memory."""
    memory_share: float
    rendezvous: str
    """A file where the ranks find each other."""


class ChooseAttention(Message, frozen=True):
    needs: AttentionNeeds


class HaveBlocks(Message, frozen=True):
    """From every rank, how many KV blocks it has the memory for; from rank 0, how many there are."""

    count: int


class Loaded(Message, frozen=True):
    """A rank is ready, with these kernels and this attention backend."""

    arithmetic: tuple[str, str]


class Failed(Message, frozen=True):
    """A rank cannot load its part."""

    reason: str


class AddDeltas(Message, frozen=True):
    """These projections have low-rank additions."""

    projections: list[str]


SentSegment: TypeAlias = tuple[int, int, int]
"""Rows [begin, end) and the number of their adapter."""


class Compute(Message, frozen=True):
    """One forward pass. `segments`: empty without adapters, whose highest rank is `lora_rank`."""

    batch: bytes
    segments: list[SentSegment] = []
    lora_rank: int = 0


class SentTensor(msgspec.Struct, frozen=True, array_like=True):
    dtype: str
    shape: list[int]
    data: bytes


class SentPart(msgspec.Struct, frozen=True, array_like=True):
    """A `specserve.api.LowRankPart`."""

    down: SentTensor
    up: SentTensor
    begin: int
    end: int


class PackAdapter(Message, frozen=True):
    """The rank's part of an adapter; by projection."""

    number: int
    weights: dict[str, list[SentPart]]


class FreeAdapter(Message, frozen=True):
    number: int


class MoveTokens(Message, frozen=True):
    """Copy keys and values of accepted tokens between slots."""

    source: list[int]
    target: list[int]


FromFirst: TypeAlias = (
    Load | ChooseAttention | HaveBlocks | AddDeltas | Compute | MoveTokens | PackAdapter | FreeAdapter
)
ToFirst: TypeAlias = HaveBlocks | Loaded | Failed
encoder = msgspec.msgpack.Encoder()
decoder_of_ranks: msgspec.msgpack.Decoder[FromFirst] = msgspec.msgpack.Decoder(FromFirst)
decoder_of_first: msgspec.msgpack.Decoder[ToFirst] = msgspec.msgpack.Decoder(ToFirst)


def encode(message: Message) -> bytes:
    return encoder.encode(message)


def next_order(connection: Connection[bytes, bytes]) -> FromFirst:
    """What rank 0 sends next. Raises EOFError where it has ended."""
    return decoder_of_ranks.decode(connection.recv_bytes())


def next_report(connection: Connection[bytes, bytes]) -> ToFirst:
    """What a rank sends next. Raises EOFError, or OSError, where it has ended."""
    return decoder_of_first.decode(connection.recv_bytes())
