"""The four forms of a completion's `prompt`: a string, strings, token ids, lists of token ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.errors import RequestError
from specserve_server.generation.engine_requests import truncate_prompt
from specserve_server.limits import MAX_PROMPTS

if TYPE_CHECKING:
    from specserve_server.bodies.requests import CompletionBody
    from specserve_server.engine_client import EngineClient, ServerTokenizer


class EncodedPrompt(NamedTuple):
    token_ids: tuple[int, ...]
    echo_text: str | None
    """None without `echo`. A character that the prompt begins and does not complete is left to the answer."""


def encode_prompts(engine: EngineClient, body: CompletionBody) -> list[EncodedPrompt]:
    return [encode_prompt(engine, body, prompt) for prompt in list_prompts(body)]


def list_prompts(body: CompletionBody) -> list[str | list[int]]:
    """Texts or lists of ids."""
    prompt = body.prompt
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise RequestError(
            "prompt is required: a string, a list of strings, a list of token ids, or a list of such lists.",
            param="prompt",
        )
    ids = [item for item in prompt if isinstance(item, int)]
    if len(ids) == len(prompt):
        return [ids]
    if ids:
        raise RequestError(
            "prompt: token ids stand beside texts or lists; give one list of ids, or a list of texts and lists of ids.",
            param="prompt",
        )
    if len(prompt) > MAX_PROMPTS:
        raise RequestError(f"prompt: at most {MAX_PROMPTS} prompts per request; got {len(prompt)}.", param="prompt")
    return [item for item in prompt if not isinstance(item, int)]


def encode_prompt(engine: EngineClient, body: CompletionBody, prompt: str | list[int]) -> EncodedPrompt:
    ids = prompt if isinstance(prompt, list) else encode_text(engine.tokenizer, body, prompt)
    kept = truncate_prompt(ids, body, engine.max_model_len)
    if not kept:
        text = (
            "it has no tokens, and an answer needs one before it; send a text, or the id of a token that begins texts"
        )
        raise RequestError(f"prompt: {text}.", param="prompt")
    if not body.echo:
        return EncodedPrompt(kept, None)
    skip = body.skip_special_tokens is not False
    if isinstance(prompt, str) and len(kept) == len(ids):
        return EncodedPrompt(kept, prompt)
    return EncodedPrompt(kept, engine.tokenizer.echo_text(kept, skip_special_tokens=skip))


def encode_text(tokenizer: ServerTokenizer, body: CompletionBody, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=body.add_special_tokens is not False)
