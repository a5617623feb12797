"""A client's request that is tokenized and checked, and how its response is formatted."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_checks.json_types import JsonObject
    from specserve_server.bodies.requests import SamplingBody
    from specserve_server.generation.choices import Choice, CompletionOutput


class ResponseFormatter(Protocol):
    """The parts of a response in which completions and chat differ."""

    @property
    def object_type(self) -> str: ...

    @property
    def chunk_object_type(self) -> str: ...

    def full_choice(self, choice: Choice, output: CompletionOutput) -> JsonObject: ...

    def chunk_choice(self, choice: Choice, output: CompletionOutput, *, first: bool) -> JsonObject | None:
        """None where there is nothing to show yet."""
        ...

    def extra_fields(self, choice: Choice, /) -> JsonObject:
        """Fields beside `choices`, from the first choice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRequest:
    id: str
    model: str
    body: SamplingBody
    formatter: ResponseFormatter
    choices: Sequence[Choice]

    def common_fields(self, object_type: str, created: int) -> JsonObject:
        return {"id": self.id, "object": object_type, "created": created, "model": self.model}


def new_id(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex}"


def response_id(id: str, body: SamplingBody) -> str:
    """What the client calls the response, where it does. The engine's own id stays another: clients may send the same
    twice at once."""
    return id if body.request_id is None else f"{id.partition('-')[0]}-{body.request_id}"
