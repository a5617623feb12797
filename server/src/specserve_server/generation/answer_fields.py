"""What the answers of completions and chat have in common. Which choices they have, each of the two knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from msgspec import UnsetType

    from specserve_server.generation.speculation_metrics import Metrics
    from specserve_server.generation.usage import Usage


class AnswerFields(msgspec.Struct):
    """The first fields of an answer and of each chunk. `object` is its kind."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    service_tier: str


AnswerHead: TypeAlias = tuple[str, Any, int, str, str, str]
"""Their values. Named arguments would take longer, in each chunk."""


class Chunk(Protocol):
    """A part of a streamed answer. The last one may have these fields, and no choices."""

    usage: Usage | UnsetType
    metrics: Metrics | UnsetType
