"""A plugin's logits processor, made safe to call.

A processor decides tokens, so one that raises ends the request that it raised for; no request goes on without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.faults import FAULTS, BadAnswerError, FaultLog, RequestFault
from specserve.plugins.interface_checks import is_async
from specserve.protocols import ProcessorState

if TYPE_CHECKING:
    from specserve.batch.request import Request
    from specserve.protocols import LogitsProcessor

CALLED = ("apply", "commit", "edit", "cut", "only", "allows")


class GuardedProcessor:
    """A processor whose attribute `essential` is true is never switched off (see `protocols.LogitsProcessor`)."""

    def __init__(self, plugin: str, processor: LogitsProcessor, log: FaultLog, *, needed: bool = False) -> None:
        self.processor = processor
        self.output_kinds = tuple(processor.output_kinds)
        self.part = log.part(plugin, "logits processor", needed=needed or processor.essential, code=processor.start)

    def start(self, request: Request, vocab_size: int) -> None:
        """Add the processor's state for this request, if it has one. Raises RequestFault."""
        if not self.part.enabled:
            return
        try:
            state = self.processor.start(request, vocab_size)
            if state is None:
                return
            if not isinstance(state, ProcessorState):
                raise BadAnswerError("started something else than a ProcessorState")
            if awaited := [name for name in CALLED if is_async(getattr(state, name))]:
                raise BadAnswerError(f"started a state whose {' and '.join(awaited)} must not be async")
        except FAULTS as error:
            raise RequestFault(request.id, f"the logits processor of {self.part.plugin}", error, self.part) from error
        list.append(request.processors, state)
        list.append(request.processor_parts, self.part)
