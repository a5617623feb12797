"""From a request to what a router is told of it. The JSON of prompts is read as text, never rendered or tokenized.

The prompts of one conversation begin alike in this form, too: the tools, the instructions, then the messages, each list
without its end. A replica's KV blocks are of tokens; the text that they stand for begins alike wherever they do.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from specserve.kv.blocks import root_hash
from specserve.namespaces import namespace_of
from specserve_ray.wire import RoutingKey

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

GENERATING = ("/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses")
MAX_BLOCKS = 4096
"""Of a prompt; what comes behind them decides nothing."""
ENDS = b'"]'
"""What ends a JSON string or list, and would differ in a longer prompt."""
HASH_BYTES = 16


class Prompt(msgspec.Struct, frozen=True):
    """The fields of all APIs' bodies that stand in the model's prompt, in its order, and whose KV blocks are used."""

    model: msgspec.Raw = msgspec.Raw()
    cache_salt: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    system: msgspec.Raw = msgspec.Raw()
    instructions: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()


def routing_key(path: str, body: bytes, base_names: Collection[str], block_bytes: int) -> RoutingKey:
    """Of a request with this body. Empty where it is no prompt; replicas say what is wrong with it."""
    if path not in GENERATING:
        return RoutingKey()
    try:
        prompt = msgspec.json.decode(body, type=Prompt)
        model = msgspec.json.decode(prompt.model or b"null", type=str | None)
        salt = msgspec.json.decode(prompt.cache_salt or b"null", type=str | None)
    except msgspec.DecodeError:
        return RoutingKey()
    adapter = adapter_of(model, base_names)
    namespace = namespace_of(adapter, salt)
    text = b"\n".join(each.rstrip().rstrip(ENDS) for each in texts(prompt))
    return RoutingKey(namespace, adapter, tuple(chain(text, namespace, block_bytes)))


def texts(prompt: Prompt) -> Iterator[bytes]:
    for field in (prompt.tools, prompt.system, prompt.instructions, prompt.prompt, prompt.messages, prompt.input):
        if field:
            yield bytes(field)


def adapter_of(model: str | None, base_names: Collection[str]) -> str:
    """`NAME` or `BASE:NAME` is an adapter, unless it is the base model; "" for that."""
    if model is None or model in base_names:
        return ""
    base, colon, name = model.partition(":")
    return name if colon and base in base_names else model


def chain(text: bytes, namespace: str, block_bytes: int) -> Iterator[bytes]:
    """A hash for each whole block, of all the text up to its end."""
    last = root_hash(namespace, "text")
    for begin in range(0, min(len(text), MAX_BLOCKS * block_bytes) - block_bytes + 1, block_bytes):
        last = hashlib.blake2b(last + text[begin : begin + block_bytes], digest_size=HASH_BYTES).digest()
        yield last
