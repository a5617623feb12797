"""A tokenizer.json that a file carries, or that was made of it: read by the library before anything else reads it.

The library panics at some of what it accepts, and a panic is no Exception: it would end the server.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve_gguf.text_keys import TextKeys

UNSAFE = {"Precompiled", "FixedLength"}
"""Parts whose data the library does not check when it reads them: a text that comes later may make it panic."""
SAMPLE = "a  B\n12 é漢🙂"


def read_by_library(keys: TextKeys, content: str, what: str) -> Tokenizer:
    """`what`: the key that the content is of. Raises ModelError."""
    try:
        unsafe = UNSAFE & set(types_of(json.loads(content)))
        rust = None if unsafe else Tokenizer.from_str(content)
        if rust is not None:
            rust.decode(rust.encode(SAMPLE).ids, skip_special_tokens=False)
            return rust
    except BaseException as error:  # the library raises plain Exception, and its panics are not even that
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise keys.broken(f"{what} makes no valid tokenizer ({str(error)[:200]})") from error
    raise keys.broken(f"{what} has a part of type {', '.join(sorted(unsafe))}, with which a text may end the process")


def types_of(part: object) -> Iterator[object]:
    """Of a tokenizer's parts and of what those are made of; vocabulary, merges and added tokens have none."""
    if isinstance(part, list):
        for each in part:
            yield from types_of(each)
    if isinstance(part, dict):
        yield str(part.get("type"))
        for name, each in part.items():
            if name not in ("vocab", "merges", "added_tokens"):
                yield from types_of(each)
