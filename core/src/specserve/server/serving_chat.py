"""POST /v1/chat/completions.

Owns messages -> prompt and the shape of its choices. No role-only chunk precedes the first token: it would
fake the time to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specserve.errors import RequestError
from specserve.server.choices import make_choice
from specserve.server.logprobs import chat_logprobs, prompt_logprobs
from specserve.server.request_bodies import ChatBody, Message, message_dict
from specserve.server.sampling_params import check_requests, make_requests, sampling_params, truncate
from specserve.server.serving import Job, answer, new_id

if TYPE_CHECKING:
    from aiohttp import web

    from specserve.server.choices import Choice, Piece
    from specserve.server.engine_client import EngineClient, ServerTokenizer


@dataclass(frozen=True, slots=True)
class ChatShape:
    tokenizer: ServerTokenizer
    body: ChatBody
    whole_object: str = "chat.completion"
    chunk_object: str = "chat.completion.chunk"

    def whole(self, choice: Choice, piece: Piece) -> dict[str, Any]:
        message = {"role": "assistant", "content": piece.text, "refusal": None}
        return {"index": choice.index, "message": message, **self.rest(piece)}

    def chunk(self, choice: Choice, piece: Piece, *, first: bool) -> dict[str, Any]:
        role = {"role": "assistant"} if first else {}
        return {"index": choice.index, "delta": {**role, "content": piece.text}, **self.rest(piece)}

    def rest(self, piece: Piece) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "logprobs": chat_logprobs(self.tokenizer, piece.logprobs) if self.body.logprobs else None,
            "finish_reason": piece.finish_reason,
        }
        if self.body.return_token_ids:
            entry |= {"token_ids": piece.tokens, "accepted": piece.accepted, "text_offset": piece.offsets}
        return entry

    def top_level(self, choice: Choice, /) -> dict[str, Any]:
        prompt_ids = choice.request.prompt_token_ids
        extras: dict[str, Any] = {}
        if self.body.return_token_ids:
            extras["prompt_token_ids"] = prompt_ids
        if self.body.prompt_logprobs is not None:
            scored, most = choice.prompt_logprobs, self.body.prompt_logprobs
            extras["prompt_logprobs"] = prompt_logprobs(self.tokenizer, prompt_ids, scored, most)
        return extras


async def chat_completions(request: web.Request) -> web.StreamResponse:
    return await answer(request, ChatBody, make_job)


def make_job(engine: EngineClient, body: ChatBody, model: str, namespace: str) -> Job:
    """Renders, tokenises and checks, so it belongs in a thread."""
    refuse_unsupported(body)
    tokenizer = engine.tokenizer
    ids = encode_messages(tokenizer, body.messages, add_generation_prompt=body.add_generation_prompt is not False)
    prompt = truncate(ids, body, engine.max_model_len)
    if not prompt:
        raise RequestError("the messages render to an empty prompt.", param="messages")
    field = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    asked: int | None = getattr(body, field)
    if asked == 0:
        raise RequestError(f"{field} must be at least 1.", param=field)
    max_tokens = max(1, engine.max_model_len - len(prompt)) if asked is None else asked
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    params = sampling_params(body, tokenizer, max_tokens=max_tokens, logprobs=logprobs, echo_logprobs=None)
    id = new_id("chatcmpl")
    requests = make_requests(id, [(prompt, params)], body, namespace)
    check_requests(engine, requests, body)
    skip = body.skip_special_tokens is not False
    choices = [
        make_choice(i, one, tokenizer.stream(prompt, skip_special_tokens=skip)) for i, one in enumerate(requests)
    ]
    return Job(id=id, model=model, body=body, shape=ChatShape(tokenizer, body), choices=choices)


def encode_messages(
    tokenizer: ServerTokenizer, messages: list[Message] | None, *, add_generation_prompt: bool
) -> list[int]:
    """The template writes the special tokens itself."""
    if not messages:
        raise RequestError("messages is required: a list of {role, content}.", param="messages")
    rendered = tokenizer.render_chat(
        [message_dict(message) for message in messages], add_generation_prompt=add_generation_prompt
    )
    return tokenizer.encode(rendered, add_special_tokens=False)


def refuse_unsupported(body: ChatBody) -> None:
    """What would silently change the answer's meaning if it were ignored."""
    if body.tools and body.tool_choice != "none":
        raise RequestError("tools are not supported; remove them or send tool_choice none.", param="tools")
    if body.response_format is not None and body.response_format.type not in (None, "text"):
        raise RequestError(
            f"response_format {body.response_format.type!r} is not supported; only text is.", param="response_format"
        )
    if body.top_logprobs and not body.logprobs:
        raise RequestError("top_logprobs needs logprobs true.", param="top_logprobs")
