"""What a step computes: the batch, its spans, the requests behind them, adapters, and rows on the device."""

from specserve.batch.batch import Batch, ScheduledBatch
from specserve.batch.hidden_states import HiddenStates
from specserve.batch.lora_plan import HostAdapters, LoraPlan, Segment, adapted
from specserve.batch.mixer_inputs import LoadedRuns, StateRun, TokenSlots
from specserve.batch.parts import part_of, rows_of_spans
from specserve.batch.preceding import PrecedingTokens, slots_before
from specserve.batch.request import Request
from specserve.batch.row_tensors import DeviceRows, copy_into, copy_to_device, to_device
from specserve.batch.span import ScheduledSpan, Span
from specserve.batch.span_states import SpanStates
from specserve.batch.state_runs import state_runs

__all__ = [
    "Batch",
    "DeviceRows",
    "HiddenStates",
    "HostAdapters",
    "LoadedRuns",
    "LoraPlan",
    "PrecedingTokens",
    "Request",
    "ScheduledBatch",
    "ScheduledSpan",
    "Segment",
    "Span",
    "SpanStates",
    "StateRun",
    "TokenSlots",
    "adapted",
    "copy_into",
    "copy_to_device",
    "part_of",
    "rows_of_spans",
    "slots_before",
    "state_runs",
    "to_device",
]
