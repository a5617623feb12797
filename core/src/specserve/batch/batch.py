"""The rows of one forward pass, and the only source of the number of query tokens of each request.

A `Batch` is complete when it is made, from spans whose KV blocks are allocated. Attention, LoRA planning, graph
shapes and memory read query lengths here and nowhere else. It holds no request, so that it can be computed elsewhere.
"""

from __future__ import annotations

import msgspec
from torch import Tensor

from specserve.batch.lora_plan import LoraPlan
from specserve.batch.mixer_inputs import LoadedRuns, TokenSlots
from specserve.batch.row_tensors import DeviceRows, RowTensors
from specserve.batch.span import ScheduledSpan, Span


class Batch(msgspec.Struct, frozen=True, eq=False):
    """spans in row order; rows of a span are contiguous: its committed tokens, then its draft tokens in node order."""

    spans: tuple[Span, ...]
    rows: RowTensors | DeviceRows
    scored_rows: Tensor | None
    """[S] int64 rows that get logits; None when all do."""
    query_lens: tuple[int, ...]
    """Rows of each span."""
    row_offsets: tuple[int, ...]
    """First row of each span."""
    scored_offsets: tuple[int, ...]
    """First row of each span in the logits."""
    num_rows: int
    num_scored: int
    block_size: int
    lora: LoraPlan | None = None
    """None: every row is the base model's."""
    preceding: TokenSlots | None = None
    """Of padded batches, which have no spans: the tokens before their rows, loaded for each step."""
    runs: LoadedRuns | None = None
    """Of padded batches: what recurrent layers compute, loaded for each step."""

    @property
    def input_ids(self) -> Tensor:
        """[T] int64."""
        return self.device_rows.input_ids

    @property
    def positions(self) -> Tensor:
        """[T] int64: a draft token at depth d of a request with n committed tokens has position n - 1 + d."""
        return self.device_rows.positions

    @property
    def slots(self) -> Tensor:
        """[T] int64: where each row's KV goes; draft token j of a request goes to slot n + j of its blocks."""
        return self.device_rows.slots

    @property
    def device_rows(self) -> DeviceRows:
        return self.rows.on_device if isinstance(self.rows, RowTensors) else self.rows

    @property
    def host_rows(self) -> Tensor:
        """[3, T]: the same in the host's memory, of batches that were built from spans."""
        assert isinstance(self.rows, RowTensors), "built from spans"
        return self.rows.host

    @property
    def only_decodes(self) -> bool:
        """Whether every request computes one committed token and its draft tokens, as in steady decoding."""
        return self.num_rows == len(self.spans) + sum(span.drafted for span in self.spans)


class ScheduledBatch(Batch, frozen=True, eq=False, kw_only=True):
    """A batch of the target, with the live requests: what verifiers, drafters, planners and observers are handed."""

    spans: tuple[ScheduledSpan, ...]
