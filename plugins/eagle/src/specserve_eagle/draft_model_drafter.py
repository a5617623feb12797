"""What drafters with a draft model share: its layers follow the target, request by request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import Drafter

if TYPE_CHECKING:
    from specserve.api.batch import Request
    from specserve_draft_models import DraftModelRuntime


class DraftModelDrafter(Drafter):
    """A subclass makes the runtime in `connect`, which start-up calls before any request."""

    name = "eagle"
    runtime: DraftModelRuntime | None = None

    def start(self, request: Request) -> None:
        assert self.runtime is not None
        self.runtime.start(request)

    def stop(self, request: Request) -> None:
        assert self.runtime is not None
        self.runtime.stop(request)
