"""A client's request that is tokenized and checked, and how its response is formatted."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.bodies.requests import SamplingBody
    from specserve_server.generation.answer_fields import AnswerFields, AnswerHead, Chunk
    from specserve_server.generation.choices import Choice, CompletionOutput
SERVICE_TIER = "default"
"""The only one: whatever a body asks for."""


class ResponseFormatter(Protocol):
    """Writes what was generated as the body, or the chunks, that completions or chat answer with."""

    @property
    def object_type(self) -> str: ...

    @property
    def chunk_object_type(self) -> str: ...

    def answer(self, head: AnswerHead, choices: Sequence[Choice]) -> AnswerFields: ...

    def chunk(self, head: AnswerHead, choice: Choice, output: CompletionOutput, *, first: bool) -> Chunk | None:
        """None where there is nothing to show yet. `first`: of this choice."""
        ...

    def last_chunk(self, head: AnswerHead) -> Chunk:
        """Without choices."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRequest:
    id: str
    model: str
    body: SamplingBody
    formatter: ResponseFormatter
    choices: Sequence[Choice]

    def head(self, object_type: str, fingerprint: str) -> AnswerHead:
        return self.id, object_type, int(time.time()), self.model, fingerprint, SERVICE_TIER


def new_id(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex}"


def response_id(id: str, body: SamplingBody) -> str:
    """What the client calls the response, where it does. The engine's own id stays another: clients may send the same
    twice at once."""
    return id if body.request_id is None else f"{id.partition('-')[0]}-{body.request_id}"
