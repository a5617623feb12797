"""The engine's requests for one body: prompts times n, each with a seed of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.errors import RequestError
from specserve.sampling.seeds import choice_seed
from specserve.types import GenerateRequest, SpeculationParams
from specserve_server.bodies.requests import Speculation
from specserve_server.limits import MAX_SEQUENCES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.types import SamplingParams
    from specserve_server.bodies.requests import SamplingBody
    from specserve_server.engine_client import EngineClient


def truncate_prompt(ids: Sequence[int], body: SamplingBody, max_model_len: int) -> tuple[int, ...]:
    """The last `truncate_prompt_tokens` tokens; -1 keeps as many as fit with one new token."""
    num_kept = body.truncate_prompt_tokens
    if num_kept is None:
        return tuple(ids)
    num_kept = max_model_len - 1 if num_kept == -1 else num_kept
    if num_kept == 0:
        raise RequestError("truncate_prompt_tokens: must be -1 or at least 1; got 0.", param="truncate_prompt_tokens")
    return tuple(ids[-num_kept:])


def make_requests(
    request_id: str, prompts: Sequence[tuple[tuple[int, ...], SamplingParams]], body: SamplingBody, adapter: str
) -> list[GenerateRequest]:
    """n requests per prompt, prompt after prompt."""
    n = body.num_choices
    if body.best_of is not None and body.best_of > n:
        raise RequestError(
            f"best_of: more than n is not served; got {body.best_of} with n {n}; leave it out.", param="best_of"
        )
    if len(prompts) * n > MAX_SEQUENCES:
        raise RequestError(f"n: prompts times n must be at most {MAX_SEQUENCES}; got {len(prompts)} x {n}.", param="n")
    return [
        GenerateRequest(
            request_id=f"{request_id}-{i * n + j}",
            prompt_token_ids=prompt,
            params=msgspec.structs.replace(params, seed=choice_seed(params.seed, i, j)),
            speculation=speculation_params(body),
            adapter=adapter,
            cache_salt=body.cache_salt,
            priority=body.priority or 0,
        )
        for i, (prompt, params) in enumerate(prompts)
        for j in range(n)
    ]


def speculation_params(body: SamplingBody) -> SpeculationParams:
    speculation = body.speculation or Speculation()
    return SpeculationParams(
        enabled=speculation.enabled is not False,
        max_draft_tokens=speculation.max_draft_tokens,
        drafters=None if speculation.drafters is None else tuple(speculation.drafters),
        return_steps=bool(body.return_speculation),
    )


def check_requests(engine: EngineClient, requests: Sequence[GenerateRequest], body: SamplingBody) -> None:
    """One choice of each prompt: the others differ in nothing that the engine could refuse."""
    for request in requests[:: body.num_choices]:
        engine.check(request)
