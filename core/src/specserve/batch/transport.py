"""A batch as bytes, for a process that computes it and has no requests: msgpack of its spans and rows.

What follows from these is made again where they arrive; adapters are planned there, since packed adapters are of one
process.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec
import torch

from specserve.batch.batch import Batch
from specserve.batch.span import Span

if TYPE_CHECKING:
    from specserve.batch.builder import BatchBuilder


class SentBatch(msgspec.Struct, frozen=True, array_like=True):
    spans: tuple[Span, ...]
    rows: bytes
    """[3, T] int64: token ids, positions and slots."""


FIELDS = Span.__struct_fields__
values_of = attrgetter(*FIELDS)
decoder = msgspec.msgpack.Decoder(SentBatch)


def send(batch: Batch) -> bytes:
    """batch: one that was built from spans."""
    spans = tuple(Span(**dict(zip(FIELDS, values_of(span), strict=True))) for span in batch.spans)
    return msgspec.msgpack.encode(SentBatch(spans, batch.host_rows.numpy().tobytes()))


def receive(data: bytes | memoryview, builder: BatchBuilder) -> Batch:
    """The batch on the builder's device. Raises msgspec.DecodeError."""
    sent = decoder.decode(data)
    num_rows = sum(span.length for span in sent.spans)
    if not num_rows or len(sent.rows) != 3 * num_rows * torch.int64.itemsize:
        raise msgspec.ValidationError(f"{len(sent.rows)} bytes hold no three numbers for each of {num_rows} rows")
    rows = torch.frombuffer(bytearray(sent.rows), dtype=torch.int64)
    return builder.with_rows(Batch, sent.spans, rows.view(3, num_rows))
