"""The traces to replay, as token ids of the demo model.

Owns where they come from (releases of packages, or a folder of texts of your own) and their dump as token ids,
`build/replay/traces.jsonl`, for tools outside Python. Knows no drafter.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING

import msgspec

from benchmarks.replay.archives import BUILD, SetupError
from benchmarks.replay.texts import KINDS, Encoder, traces_of
from specserve.models.locate import locate_model
from specserve.text.tokenizer import HfTokenizer
from specserve_bench.replay.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DUMP = BUILD / "traces.jsonl"


class TextTrace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of a JSONL file that `--traces` reads."""

    name: str
    kind: str
    prompt: str
    output: str


def make_traces(kinds: Sequence[str] = KINDS) -> list[Trace]:
    """The benchmark's own traces, kind by kind; dumped if all kinds are made. The first call downloads releases."""
    encoder = HfTokenizer.from_dir(locate_model("demo"))
    traces = [trace for kind in kinds for trace in traces_of(kind, encoder)]
    if set(kinds) == set(KINDS):
        DUMP.write_text("".join(json.dumps(trace._asdict()) + "\n" for trace in traces), encoding="utf-8")
    return traces


def read_traces(folder: Path, kinds: Sequence[str] = ()) -> list[Trace]:
    """Texts of every *.jsonl file in `folder`, in order of file name; without `kinds` all of them."""
    encoder = HfTokenizer.from_dir(locate_model("demo"))
    traces = [encoded(line, encoder) for path in sorted(folder.glob("*.jsonl")) for line in read_lines(path)]
    chosen = [trace for trace in traces if not kinds or trace.kind in kinds]
    if not chosen:
        raise SetupError(f"the *.jsonl files of {folder} hold no traces of the requested kinds.")
    return chosen


def read_lines(path: Path) -> list[TextTrace]:
    try:
        return [msgspec.json.decode(line, type=TextTrace) for line in path.read_bytes().splitlines() if line.strip()]
    except msgspec.DecodeError as error:
        raise SetupError(f"{path}: {error}. Each line is a JSON object of name, kind, prompt, output.") from error


def encoded(line: TextTrace, encoder: Encoder) -> Trace:
    return Trace(line.name, line.kind, encoder.encode(line.prompt), encoder.encode(line.output))


def digest(traces: Sequence[Trace]) -> str:
    """Eight hex digits that identify the traces: results on different traces are not comparable."""
    return f"{zlib.crc32(json.dumps(traces).encode()):08x}"
