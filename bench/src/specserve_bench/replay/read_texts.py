"""Texts of files, as traces: JSONL with a prompt and an output a line, or any text, cut behind its begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from specserve.errors import ConfigError
from specserve_bench.replay.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class Line(msgspec.Struct, frozen=True):
    """Of a JSONL file. Other fields are left out."""

    prompt: str
    output: str
    kind: str | None = None
    name: str | None = None


class Encoder(Protocol):
    def encode(self, text: str) -> list[int]: ...


class Lengths(NamedTuple):
    """In tokens."""

    prompt: int
    """How much of a text's begin is the prompt, where nothing says it."""
    output: int
    """Outputs are cut behind so many."""


def read_texts(paths: Sequence[Path], encoder: Encoder, lengths: Lengths) -> list[Trace]:
    """Folders give all of their files. ConfigError where a file cannot be read, or nothing has an output."""
    files = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    readable = (file for file in files if not file.is_dir())
    traces = [trace for file in readable for trace in read_file(file, encoder, lengths) if trace.output]
    if not traces:
        raise ConfigError(
            f"bench replay: {', '.join(map(str, paths))} hold no text with more than {lengths.prompt} tokens. "
            "Name others, or pass a lower --prompt-tokens."
        )
    return traces


def read_file(file: Path, encoder: Encoder, lengths: Lengths) -> Iterator[Trace]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"bench replay: {file} is no text that can be read: {error}.") from None
    if file.suffix == ".jsonl":
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield of_line(parse_line(f"{file}:{number}", line), f"{file.stem}:{number}", file, encoder, lengths)
        return
    ids = encoder.encode(text)
    kind = file.suffix.removeprefix(".") or "text"
    yield Trace(file.name, kind, ids[: lengths.prompt], ids[lengths.prompt : lengths.prompt + lengths.output])


def parse_line(where: str, text: str) -> Line:
    try:
        return msgspec.json.decode(text, type=Line)
    except msgspec.DecodeError as error:
        raise ConfigError(
            f'bench replay: {where}: {error}. A line is an object such as {{"prompt": "...", "output": "..."}}.'
        ) from None


def of_line(line: Line, name: str, file: Path, encoder: Encoder, lengths: Lengths) -> Trace:
    output = encoder.encode(line.output)[: lengths.output]
    return Trace(line.name or name, line.kind or file.stem, encoder.encode(line.prompt), output)
