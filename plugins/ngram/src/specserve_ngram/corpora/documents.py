"""The text of a corpus, from files and request bodies, in slices.

Owns UTF-8, JSON lines, and where a long text is split. Knows nothing about tokens, requests or permissions.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from specserve.api.files import explain_json_error
from specserve_ngram.corpora.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

SLICE = 16_384
"""Characters that are tokenized at once, which takes a few milliseconds."""
MAX_LINE = 64 * 2**20
"""Bytes of a line of JSON."""


class Slice(NamedTuple):
    """A part of a document. `ends`: the last one. `bytes_read` counts from the beginning of the source."""

    text: str
    ends: bool
    bytes_read: int


class Source(Protocol):
    """`size` is in bytes; `slices` raises CorpusError and OSError."""

    label: str
    size: int

    def slices(self) -> Iterator[Slice]: ...


class Documents:
    """Texts that a client sent."""

    label = "documents"

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self.size = sum(len(encoded(text)) for text in texts)

    def slices(self) -> Iterator[Slice]:
        read = 0
        for text in self.texts:
            for part, ends in split(text):
                read += len(encoded(part))
                yield Slice(part, ends, read)


class TextFile:
    """A file that is one document."""

    def __init__(self, path: Path, label: str) -> None:
        self.path, self.label, self.size = path, label, path.stat().st_size

    def slices(self) -> Iterator[Slice]:
        with open_regular(self.path) as file:
            decoder = codecs.getincrementaldecoder("utf-8")()
            text, read = "", 0
            while block := file.read(SLICE):
                read += len(block)
                text += decode(decoder, block, read)
                while len(text) > SLICE:
                    at = split_point(text)
                    yield Slice(text[:at], False, read)
                    text = text[at:]
            text += decode(decoder, b"", read)
            yield from (Slice(part, ends, read) for part, ends in split(text))


class JsonLines:
    """A file with a document per line: a JSON string, or an object whose "text" is one."""

    def __init__(self, path: Path, label: str) -> None:
        self.path, self.label, self.size = path, label, path.stat().st_size

    def slices(self) -> Iterator[Slice]:
        with open_regular(self.path) as file:
            number, read = 0, 0
            while line := file.readline(MAX_LINE + 1):
                number += 1
                if len(line) > MAX_LINE:
                    raise CorpusError(f"line {number} is longer than {MAX_LINE // 2**20} MiB; split the document.")
                decode(codecs.getincrementaldecoder("utf-8")(), line, read + len(line), final=True)
                read += len(line)
                if line.strip():
                    yield from (Slice(part, ends, read) for part, ends in split(text_of(line, number)))


class Document(msgspec.Struct, frozen=True):
    """A line that is an object; its other keys are ignored."""

    text: str


def text_of(line: bytes, number: int) -> str:
    """The document on line `number`."""
    try:
        document = msgspec.json.decode(line, type=str | Document)
    except msgspec.ValidationError:
        raise CorpusError(f'line {number} must be a JSON string or an object whose "text" is a string.') from None
    except msgspec.DecodeError as error:
        raise CorpusError(f"line {number} is not valid JSON: {explain_json_error(line, error)}.") from None
    except RecursionError:
        raise CorpusError(f"line {number} nests too deeply.") from None
    return document if isinstance(document, str) else document.text


def open_regular(path: Path) -> BinaryIO:
    """`path` was resolved before; a symbolic link that has replaced it since is not followed."""
    if path.resolve() != path or not path.is_file():
        raise CorpusError("the file was moved or replaced since it was asked for.")
    return path.open("rb")


def decode(decoder: codecs.IncrementalDecoder, block: bytes, read: int, *, final: bool = False) -> str:
    """The text of `block`, which ends `read` bytes into the source. An empty block is the end of the source."""
    waiting = len(decoder.getstate()[0])
    try:
        return decoder.decode(block, final or not block)
    except UnicodeDecodeError as error:
        at = read - len(block) - waiting + error.start
        raise CorpusError(f"the file is not UTF-8: {error.reason} at byte {at}. Convert it.") from None


def split(text: str) -> Iterator[tuple[str, bool]]:
    """Parts of at most SLICE characters, and whether each is the last one."""
    begin = 0
    while len(text) - begin > SLICE:
        end = split_point(text, begin)
        yield text[begin:end], False
        begin = end
    yield text[begin:], True


def split_point(text: str, begin: int = 0) -> int:
    """Before a line without indentation, where a token begins in any case; else before any line; else after SLICE."""
    first, end = begin + SLICE // 2, begin + SLICE
    at = last = text.rfind("\n", first, end)
    while at != -1 and text[at + 1].isspace():
        at = text.rfind("\n", first, at)
    at = at if at != -1 else last
    return at + 1 if at != -1 else end


def encoded(text: str) -> bytes:
    """UTF-8, of lone surrogates too."""
    return text.encode("utf-8", "surrogatepass")
