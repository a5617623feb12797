"""The tokenizer of a model directory in Hugging Face format.

Owns ids <-> text, the special and EOS tokens, and the directory's sampling defaults. Knows nothing about requests and
chats.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING

from tokenizers import Tokenizer as RustTokenizer

from specserve.errors import ModelError, RequestError
from specserve.model_files import of_text, read_optional_json
from specserve.text.eos import configured_eos_ids, drop_beyond_vocab, tokenizer_eos_ids
from specserve.text.panics import panics_as
from specserve.text.sampling_defaults import sampling_defaults
from specserve.text.text_stream import HfTextStream
from specserve.text.token_pieces import TokenPieces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NOT_UNICODE = "the text is not valid Unicode: it holds half of a surrogate pair."
SAMPLE = "a  B\n12 é漢🙂"
LONG_TEXT = 4096
"""Texts with more characters are encoded without the interpreter's lock."""


def read_tokenizer(file: Path) -> RustTokenizer:
    """Raises ModelError: no JSON, or JSON that the library does not know, or at which it panics."""
    try:
        with panics_as(RuntimeError):
            rust = RustTokenizer.from_file(str(file))
            with suppress(Exception):  # some vocabularies have no token for some characters
                rust.decode(rust.encode(SAMPLE).ids, skip_special_tokens=False)
        return rust
    except Exception as error:  # the library raises plain Exception
        read_optional_json(file)
        raise ModelError(
            f"{file} is not a valid tokenizer: the library tokenizers {version('tokenizers')} reads no such file "
            f"({error}). Download it again, or update the library if the model is newer."
        ) from error


def cannot_encode(why: str) -> RequestError:
    return RequestError(f"the model's tokenizer cannot encode this text: {why}. Send another text.")


class HfTokenizer:
    """Made by `from_dir`; safe to share between threads."""

    def __init__(
        self,
        rust: RustTokenizer,
        *,
        path: Path | None = None,
        eos_token_ids: tuple[int, ...] = (),
        sampling_defaults: Mapping[str, float] | None = None,
        tokenizer_class: str | None = None,
    ) -> None:
        rust.no_truncation()
        rust.no_padding()
        self._rust = rust
        self.path = path
        """The directory that it was read from; None: it was made of its parts."""
        self.tokenizer_class = tokenizer_class
        self._pieces = TokenPieces(rust)
        self._texts: dict[tuple[int, bool], str] = {}
        """The text of single tokens, at the beginning of a text or not: a cache."""
        self._special = frozenset(id for id, token in rust.get_added_tokens_decoder().items() if token.special)
        self.eos_token_ids = eos_token_ids
        self.vocab_size: int = rust.get_vocab_size(with_added_tokens=True)
        self.sampling_defaults: Mapping[str, float] = dict(sampling_defaults or {})
        """The model's defaults of temperature, top_k, top_p, min_p and repetition_penalty, as far as it has any."""

    @classmethod
    def from_dir(
        cls,
        path: Path,
        *,
        model: Path | None = None,
        defaults: str | Mapping[str, float] = "auto",
    ) -> HfTokenizer:
        """Read tokenizer.json and tokenizer_config.json, and from `model`, by default the same directory,
        generation_config.json and config.json. `defaults`: as EngineConfig.generation_config."""
        file = path / "tokenizer.json"
        if not file.is_file():
            raise ModelError(
                f"{path} has no tokenizer.json. specserve reads only that format; convert the tokenizer with "
                "transformers' save_pretrained of a fast tokenizer."
            )
        rust = read_tokenizer(file)
        settings = read_optional_json(path / "tokenizer_config.json")
        model = model or path
        generation = read_optional_json(model / "generation_config.json")
        config = of_text(read_optional_json(model / "config.json"))
        eos_ids = configured_eos_ids(model, generation, config) or tokenizer_eos_ids(rust, settings)
        class_name = settings.get("tokenizer_class")
        return cls(
            rust,
            path=path,
            eos_token_ids=drop_beyond_vocab(model, eos_ids, config.get("vocab_size")),
            sampling_defaults=sampling_defaults(defaults, generation),
            tokenizer_class=class_name if isinstance(class_name, str) else None,
        )

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The library holds the interpreter's lock while it encodes one text, so a long one is encoded as a batch."""
        if len(text) > LONG_TEXT:
            return self.encode_in_background(text, add_special_tokens=add_special_tokens)
        try:
            with panics_as(cannot_encode):
                ids: list[int] = self._rust.encode(text, add_special_tokens=add_special_tokens).ids
        except TypeError:
            raise RequestError(NOT_UNICODE) from None
        return ids

    def encode_in_background(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """`encode` for threads beside the step loop: without the interpreter's lock. The library's worker threads are
        started by the first caller and inherit its priority."""
        try:
            with panics_as(cannot_encode):
                (encoding,) = self._rust.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        except TypeError:
            raise RequestError(NOT_UNICODE) from None
        ids: list[int] = encoding.ids
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        with panics_as(RuntimeError):
            text: str = self._rust.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    def stream(self, prompt_ids: Sequence[int], *, skip_special_tokens: bool = True) -> HfTextStream:
        return HfTextStream.after(self._pieces, prompt_ids, self._skipped(skip_special_tokens))

    def echo_stream(self, prompt_ids: Sequence[int], *, skip_special_tokens: bool = True) -> HfTextStream:
        """Continues `echo_text`: a character that the prompt begins and does not complete is this stream's."""
        return HfTextStream(self._pieces, prompt_ids, self._skipped(skip_special_tokens))

    def echo_text(self, prompt_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of a prompt, as far as its characters are whole."""
        stream = self.echo_stream((), skip_special_tokens=skip_special_tokens)
        return "".join(map(stream.push, prompt_ids))

    def shows(self, token_id: int, *, skip_special_tokens: bool = True) -> bool:
        """Whether the token is part of the text."""
        return token_id not in self._skipped(skip_special_tokens) and self._pieces.is_token(token_id)

    def _skipped(self, skip_special_tokens: bool) -> frozenset[int]:
        return self._special if skip_special_tokens else frozenset[int]()

    def token_text(self, token_id: int, *, first: bool = False) -> str:
        """What the token adds to a text; `bytes:\\xe6` where that is no whole character. `first`: the text begins with
        it. Special tokens have their name, whether they are skipped or not."""
        known = self._texts.get((token_id, first))
        if known is None:
            known = self._texts[token_id, first] = self.text_of(token_id, first)
        return known

    def text_of(self, token_id: int, first: bool) -> str:
        if token_id in self._special:
            return self.decode([token_id], skip_special_tokens=False)
        piece = self._pieces.named_piece(token_id, first=first)
        try:
            return piece.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)

    def token_bytes(self, token_id: int, *, first: bool = False, skip_special_tokens: bool = True) -> bytes:
        """What the token adds to a text, in bytes: nothing if it is a special token and skipped."""
        if token_id in self._skipped(skip_special_tokens):
            return b""
        return self._pieces.named_piece(token_id, first=first)

    def is_special(self, text: str) -> bool:
        """Whether the text is one special token."""
        return self._rust.token_to_id(text) in self._special
