"""The tokenizer of a model directory in Hugging Face format.

Owns ids <-> text, the special and end-of-text tokens, and the directory's sampling defaults. Knows nothing
about requests. Decoding a token at a time is `HfTextStream`, whose state is bounded whatever it is fed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer as RustTokenizer
from tokenizers.decoders import DecodeStream

from specserve.errors import ModelError, RequestError
from specserve.text.chat_template import ChatTemplate, find_chat_template
from specserve.text.eos import ends_of, generable, stated_ends

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

REPLACEMENT = "\ufffd"
SAMPLING_DEFAULTS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
MAX_CHARACTER_TAIL = 3
"""A UTF-8 character has four bytes at most, so at most three tokens wait for its last byte."""
MAX_PENDING = 16
"""After so many tokens without text the bytes are no character and are shown as U+FFFD."""
NOT_UNICODE = "the text is not valid Unicode: it holds half of a surrogate pair."
LONG_TEXT = 4096
"""Characters from which on other threads run while a text is encoded."""
CONTEXT = 8
"""Prompt tokens that a stream needs to continue after them; decoders look at most at their neighbour."""


class HfTokenizer:
    """Made by `from_dir`; safe to share between threads."""

    def __init__(
        self,
        rust: RustTokenizer,
        *,
        eos_token_ids: tuple[int, ...] = (),
        chat_template: ChatTemplate | None = None,
        sampling_defaults: Mapping[str, float] | None = None,
    ) -> None:
        rust.no_truncation()
        rust.no_padding()
        self._rust = rust
        self._chat_template = chat_template
        self._texts: dict[int, str] = {}
        """Of tokens alone, as they were asked for."""
        self._special = frozenset(id for id, token in rust.get_added_tokens_decoder().items() if token.special)
        self.eos_token_ids = eos_token_ids
        self.vocab_size: int = rust.get_vocab_size(with_added_tokens=True)
        self.sampling_defaults: Mapping[str, float] = dict(sampling_defaults or {})
        """Of generation_config.json: temperature, top_k, top_p, min_p, repetition_penalty, where it has them."""

    @classmethod
    def from_dir(cls, path: Path) -> HfTokenizer:
        """Read tokenizer.json, tokenizer_config.json, generation_config.json, config.json and the chat template."""
        file = path / "tokenizer.json"
        if not file.is_file():
            raise ModelError(
                f"{path} has no tokenizer.json. specserve reads only that format; convert the tokenizer with "
                "transformers' save_pretrained of a fast tokenizer."
            )
        try:
            rust = RustTokenizer.from_file(str(file))
        except Exception as error:  # the library raises plain Exception
            raise ModelError(f"{file} is not a valid tokenizer: {error}.") from error
        settings = read_json(path / "tokenizer_config.json")
        generation = read_json(path / "generation_config.json")
        config = read_json(path / "config.json")
        ends = stated_ends(path, generation, config) or ends_of(rust, settings)
        return cls(
            rust,
            eos_token_ids=generable(path, ends, config.get("vocab_size")),
            chat_template=find_chat_template(path, settings),
            sampling_defaults={key: generation[key] for key in SAMPLING_DEFAULTS if is_number(generation.get(key))},
        )

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """A long text is encoded while other threads run: otherwise the library holds the interpreter's lock from the
        beginning to the end."""
        if len(text) > LONG_TEXT:
            return self.encode_in_background(text, add_special_tokens=add_special_tokens)
        try:
            ids: list[int] = self._rust.encode(text, add_special_tokens=add_special_tokens).ids
        except TypeError:
            raise RequestError(NOT_UNICODE) from None
        return ids

    def encode_in_background(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """`encode` for threads beside the step loop. The library's helpers, which the first caller's thread begins,
        inherit that thread's rank."""
        try:
            (encoding,) = self._rust.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        except TypeError:
            raise RequestError(NOT_UNICODE) from None
        ids: list[int] = encoding.ids
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        text: str = self._rust.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    def stream(self, prompt_ids: Sequence[int], *, skip_special_tokens: bool = True) -> HfTextStream:
        skipped = self._special if skip_special_tokens else frozenset[int]()
        return HfTextStream(self._rust, prompt_ids, skipped)

    def token_text(self, token_id: int) -> str:
        """One token alone; `bytes:\\xe6` for one that is only a part of a character."""
        known = self._texts.get(token_id)
        if known is None:
            known = self._texts[token_id] = self.text_of(token_id)
        return known

    def text_of(self, token_id: int) -> str:
        text = self.decode([token_id], skip_special_tokens=False)
        if REPLACEMENT not in text:
            return text
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in self.token_bytes(token_id))

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that the token stands for."""
        text = self.decode([token_id], skip_special_tokens=False)
        if REPLACEMENT not in text:
            return text.encode()
        token = self._rust.id_to_token(token_id) or ""
        if len(token) == 6 and token.startswith("<0x"):
            return bytes([int(token[3:5], 16)])
        if all(character in BYTE_OF for character in token):
            return bytes(BYTE_OF[character] for character in token)
        return text.encode()

    def render_chat(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        """The prompt of a conversation. RequestError when the template refuses it or the model has none."""
        return ChatTemplate.render_or_refuse(self._chat_template, messages, variables)


class HfTextStream:
    """Decodes one sequence token by token. Emits only whole characters; text never changes once emitted.

    What an incomplete character at the very end would be is never emitted.
    """

    __slots__ = ("_pending", "_rust", "_skipped", "_stream")

    def __init__(self, rust: RustTokenizer, prompt_ids: Sequence[int], skipped: frozenset[int]) -> None:
        self._rust = rust
        self._skipped = skipped
        context = [id for id in prompt_ids[-CONTEXT:] if id not in skipped]
        # The library repeats the text of a context that ends within a character: such a tail is pushed instead.
        whole = len(context)
        while whole and rust.decode(context[:whole], skip_special_tokens=False).endswith(REPLACEMENT):
            whole -= 1
        tail = context[whole:][-MAX_CHARACTER_TAIL:]
        self._pending: list[int] = []
        self._stream = DecodeStream(ids=context[:whole], skip_special_tokens=False)
        for token_id in tail:
            self.push(token_id)

    def push(self, token_id: int) -> str:
        if token_id in self._skipped:
            return ""
        self._pending.append(token_id)
        try:
            text = self._stream.step(self._rust, token_id)
        except Exception:  # the library's "invalid prefix", of decoders that rewrite their earlier output
            return self._restart(self._pending, [])
        if text:
            self._pending.clear()
            return str(text)
        if len(self._pending) < MAX_PENDING:
            return ""
        return self._restart(self._pending[:-MAX_CHARACTER_TAIL], self._pending[-MAX_CHARACTER_TAIL:])

    def _restart(self, emitted: list[int], kept: list[int]) -> str:
        """Give up waiting: emit the text of `emitted` as it is and go on with `kept`."""
        self._pending = []
        self._stream = DecodeStream(skip_special_tokens=False)
        text: str = self._rust.decode(emitted, skip_special_tokens=False)
        return text + "".join(self.push(token_id) for token_id in kept)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, empty where there is no such file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, OSError) as error:
        raise ModelError(f"{path} is not readable JSON: {error}.") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} must hold a JSON object; got {type(content).__name__}.")
    return content


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def byte_alphabet() -> dict[str, int]:
    """The characters that byte-level BPE (GPT-2) writes for bytes: printable bytes as they are, the rest from 256."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTE_OF = byte_alphabet()
