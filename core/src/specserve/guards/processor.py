"""A plugin's logits processor, made safe to call.

A processor decides tokens, so one that raises ends the request that it raised for; no request goes on without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.faults import FAULTS, BadAnswerError, FaultLog, RequestFault
from specserve.plugins.interface_checks import is_async, missing_members

if TYPE_CHECKING:
    from specserve.batch.request import Request
    from specserve.protocols import LogitsProcessor

STATE_METHODS = ("apply", "commit")
CALLED = (*STATE_METHODS, "edit", "cut", "only", "allows")
"""Those that a state may have, too."""


class GuardedProcessor:
    """A processor whose attribute `essential` is true is never switched off (see `protocols.LogitsProcessor`)."""

    def __init__(self, plugin: str, processor: LogitsProcessor, log: FaultLog, *, needed: bool = False) -> None:
        self.processor = processor
        needed = needed or bool(getattr(processor, "essential", False))
        self.output_kinds = tuple(getattr(processor, "output_kinds", ()))
        self.part = log.part(plugin, "logits processor", needed=needed, code=processor.start)

    def start(self, request: Request, vocab_size: int) -> None:
        """Add the processor's state for this request, if it has one. Raises RequestFault."""
        if not self.part.enabled:
            return
        try:
            state = self.processor.start(request, vocab_size)
            if state is None:
                return
            if missing := missing_members(state, methods=STATE_METHODS):
                raise BadAnswerError(f"started a state without {', '.join(missing)}")
            if awaited := [name for name in CALLED if is_async(getattr(state, name, None))]:
                raise BadAnswerError(f"started a state whose {' and '.join(awaited)} must not be async")
        except FAULTS as error:
            raise RequestFault(request.id, f"the logits processor of {self.part.plugin}", error, self.part) from error
        list.append(request.processors, state)
        list.append(request.processor_parts, self.part)
