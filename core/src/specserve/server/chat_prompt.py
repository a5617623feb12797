"""From the messages of a chat to the token ids of its prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import RequestError

if TYPE_CHECKING:
    from specserve.server.engine_client import ServerTokenizer
    from specserve.server.request_bodies import Message


def encode_messages(
    tokenizer: ServerTokenizer, messages: list[Message] | None, *, add_generation_prompt: bool
) -> list[int]:
    """The template writes the special tokens itself."""
    if not messages:
        raise RequestError("messages is required: a list of {role, content}.", param="messages")
    rendered = tokenizer.render_chat(
        [template_message(message) for message in messages], add_generation_prompt=add_generation_prompt
    )
    return tokenizer.encode(rendered, add_special_tokens=False)


def template_message(message: Message) -> dict[str, str]:
    """A message as chat templates read it; text parts are joined."""
    content = message.content
    if isinstance(content, list):
        for part in content:
            if part.type != "text":
                raise RequestError(f"only text content is served; got a part of type {part.type!r}.", param="messages")
            if part.text is None:
                raise RequestError("a content part of type text needs a text.", param="messages")
        content = "\n".join(part.text or "" for part in content)
    name = {} if message.name is None else {"name": message.name}
    return {"role": message.role, "content": content or "", **name}
