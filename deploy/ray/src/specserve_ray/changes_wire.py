"""What the actor of changes tells others."""

from __future__ import annotations

import msgspec

from specserve_ray.change_log import MadeChange
from specserve_ray.wire import Answer


class Applied(msgspec.Struct, frozen=True):
    answer: Answer
    number: int
    """Of the last change; replicas that have not made it must do so before they serve the client's next request."""


class LoggedChanges(msgspec.Struct, frozen=True):
    number: int
    """Of the last change."""
    made: tuple[MadeChange, ...]
    """Those after the number that was asked for."""
