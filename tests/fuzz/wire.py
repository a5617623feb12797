"""A request as it crosses the border into an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuzz.plans import changed
from specserve.types import GenerateRequest

if TYPE_CHECKING:
    from fuzz.plans import RequestPlan


def as_request(request: RequestPlan, adapter: str, *, max_tokens: int | None = None, **fields: Any) -> GenerateRequest:
    """`fields` in place of the request's own."""
    params = request.params
    if max_tokens is not None:  # fewer may be left than the least: the end of the context comes first
        params = changed(params, max_tokens=max_tokens)
    given = {
        "params": params,
        "speculation": request.speculation,
        "priority": request.priority,
        "cache_salt": request.salt or None,
    }
    return GenerateRequest(request_id=request.id, prompt_token_ids=request.prompt, adapter=adapter, **(given | fields))
