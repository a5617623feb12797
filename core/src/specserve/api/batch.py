"""What a step computes: the batch, its spans, the requests behind them, adapters, and rows on the device."""

from specserve.batch.batch import Batch, ScheduledBatch
from specserve.batch.hidden_states import HiddenStates
from specserve.batch.lora_plan import HostAdapters, LoraPlan, Segment, adapted
from specserve.batch.preceding import PrecedingTokens
from specserve.batch.request import Request
from specserve.batch.row_tensors import DeviceRows, copy_into, copy_to_device, to_device
from specserve.batch.span import ScheduledSpan, Span
from specserve.batch.span_states import SpanStates
from specserve.batch.state_runs import StateRun, state_runs

__all__ = [
    "Batch",
    "DeviceRows",
    "HiddenStates",
    "HostAdapters",
    "LoraPlan",
    "PrecedingTokens",
    "Request",
    "ScheduledBatch",
    "ScheduledSpan",
    "Segment",
    "Span",
    "SpanStates",
    "StateRun",
    "adapted",
    "copy_into",
    "copy_to_device",
    "state_runs",
    "to_device",
]
