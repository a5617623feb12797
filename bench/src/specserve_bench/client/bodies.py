"""The bodies of requests, for the two routes of the OpenAI API that generate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.errors import ConfigError

if TYPE_CHECKING:
    from specserve_bench.prompts.prompt import Prompt

ROUTES = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What all requests of a run have in common."""

    api: str = "completions"
    """One of ROUTES."""
    model: str | None = None
    max_tokens: int = 128
    temperature: float | None = None
    """None: the server's default."""
    ignore_eos: bool = False
    further: dict[str, object] = {}
    """More fields, over all others."""

    def body(self, prompt: Prompt) -> bytes:
        """JSON. ConfigError where the prompt does not fit the route."""
        fields: dict[str, object] = {
            **self.question(prompt),
            "max_tokens": prompt.max_tokens or self.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.model is not None:
            fields["model"] = self.model
        if self.temperature is not None:
            fields["temperature"] = self.temperature
        if self.ignore_eos:
            fields["ignore_eos"] = True
        return msgspec.json.encode({**fields, **self.further})

    def question(self, prompt: Prompt) -> dict[str, object]:
        if self.api == "chat":
            if prompt.token_ids is not None:
                raise ConfigError("bench: prompts of token ids go to /v1/completions only; leave out --api chat.")
            return {"messages": prompt.messages or [{"role": "user", "content": prompt.text}]}
        if prompt.messages is not None:
            raise ConfigError("bench: prompts with messages go to /v1/chat/completions only; add --api chat.")
        return {"prompt": prompt.text if prompt.token_ids is None else prompt.token_ids}
