"""The streams to replay, as the demo model's tokens.

Owns where they come from (releases of packages, or a folder of texts of your own) and their dump as token ids,
`build/replay/streams.jsonl`, for tools outside Python. Knows no drafter.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING

import msgspec

from benchmarks.replay.archives import BUILD, MaterialError
from benchmarks.replay.texts import KINDS, Encoder, Stream, streams_of
from specserve.models.locate import locate_model
from specserve.text.tokenizer import HfTokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DUMP = BUILD / "streams.jsonl"


class TextStream(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of a JSONL file that `--streams` reads."""

    name: str
    kind: str
    prompt: str
    output: str


def make_streams(kinds: Sequence[str] = KINDS) -> list[Stream]:
    """The benchmark's own streams, kind by kind, dumped when all are made. The first time pip fetches the releases."""
    encoder = HfTokenizer.from_dir(locate_model("demo"))
    streams = [stream for kind in kinds for stream in streams_of(kind, encoder)]
    if set(kinds) == set(KINDS):
        DUMP.write_text("".join(json.dumps(stream._asdict()) + "\n" for stream in streams), encoding="utf-8")
    return streams


def read_streams(folder: Path, kinds: Sequence[str] = ()) -> list[Stream]:
    """Texts of every *.jsonl file in `folder`, in order of file name; without `kinds` all that are there."""
    encoder = HfTokenizer.from_dir(locate_model("demo"))
    streams = [encoded(line, encoder) for path in sorted(folder.glob("*.jsonl")) for line in read_lines(path)]
    chosen = [stream for stream in streams if not kinds or stream.kind in kinds]
    if not chosen:
        raise MaterialError(f"{folder} holds no streams of the kinds asked for in its *.jsonl files.")
    return chosen


def read_lines(path: Path) -> list[TextStream]:
    try:
        return [msgspec.json.decode(line, type=TextStream) for line in path.read_bytes().splitlines() if line.strip()]
    except msgspec.DecodeError as error:
        raise MaterialError(f"{path}: {error}. Each line is a JSON object of name, kind, prompt, output.") from error


def encoded(line: TextStream, encoder: Encoder) -> Stream:
    return Stream(line.name, line.kind, encoder.encode(line.prompt), encoder.encode(line.output))


def digest(streams: Sequence[Stream]) -> str:
    """Eight hex digits that are equal where the streams are: figures of different streams do not compare."""
    return f"{zlib.crc32(json.dumps(streams).encode()):08x}"
