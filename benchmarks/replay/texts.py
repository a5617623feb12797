"""Prompts and outputs of four kinds of requests, made of release files.

edit   an old file and one line that names what to change; the same file of a later release.
code   the first 100 tokens of a source file; its rest.
qa     a document and a question; a text by the same authors on the same subject: a module and its page of the manual,
       the history of a release and its release notes. They were not written as answers, and quote the document less
       evenly than a model that answers from it would.
chat   the first 50 tokens of a page of a manual; its rest. Prose that quotes no document and holds some code.

Owns the choice of files and the wording of prompts. Token counts come from an `Encoder`.
"""

from __future__ import annotations

import ast
import zlib
from difflib import SequenceMatcher
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from benchmarks.replay.archives import SetupError, read_release
from benchmarks.replay.corpus import CODE, EDITS, FILES_PER_PACKAGE, PROSE, QUESTIONS, EditPair, Page, Question
from specserve_bench.replay.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

KINDS = ("edit", "code", "qa", "chat")
MIN_LEN, MAX_EDIT_LEN, MAX_OUTPUT_LEN, MAX_DOCUMENT_LEN = 300, 4000, 2000, 4000
CODE_PROMPT_LEN, CHAT_PROMPT_LEN = 100, 50
CHANGED_SHARE = (0.005, 0.25)
"""Of a file's lines. Below: only a version number changed; above: it is a different file."""
MAX_NAMES = 8
NOT_MODULES = frozenset(
    {"test", "tests", "testing", "_tests", "doc", "docs", "examples", "scripts", "tools", "setup.py"}
)
"""Folders and files that are not the package's own modules."""


class Encoder(Protocol):
    def encode(self, text: str) -> list[int]: ...


def traces_of(kind: str, encoder: Encoder) -> Iterator[Trace]:
    if kind == "edit":
        return (trace for pair in EDITS for trace in edits(pair, encoder))
    if kind == "code":
        return (trace for name, version in CODE for trace in sources(name, version, encoder))
    if kind == "qa":
        return (answer(question, encoder) for question in QUESTIONS)
    if kind == "chat":
        return (prose(page, encoder) for page in PROSE)
    raise SetupError(f"no kind of trace is named {kind!r}; there are: {', '.join(KINDS)}.")


def edits(pair: EditPair, encoder: Encoder) -> Iterator[Trace]:
    old, new = (read_release(pair.package, version) for version in (pair.old, pair.new))
    found = (edit(pair, path, old[path], new[path], encoder) for path in source_paths(old) if path in new)
    chosen = list(islice((trace for trace in found if trace is not None), FILES_PER_PACKAGE))
    require_enough(chosen, f"{pair.package} {pair.old} and {pair.new}")
    return iter(chosen)


def edit(pair: EditPair, path: str, old: str, new: str, encoder: Encoder) -> Trace | None:
    """None if the file is too short or too long, or changed too little or too much."""
    changed = changed_lines(old, new)
    share = len(changed) / (old.count("\n") + 1)
    if not CHANGED_SHARE[0] <= share <= CHANGED_SHARE[1]:
        return None
    names = ", ".join(touched_names(old, changed)[:MAX_NAMES]) or "the module"
    order = f"\n\nChange {names} of {path} as in {pair.package} {pair.new}. The whole new file:\n\n"
    document, output = encoder.encode(old), encoder.encode(new)
    if not all(MIN_LEN <= len(ids) <= MAX_EDIT_LEN for ids in (document, output)):
        return None
    return Trace(f"{pair.package}-{pair.new}/{path}", "edit", document + encoder.encode(order), output)


def changed_lines(old: str, new: str) -> list[int]:
    """Numbers (from 1) of the old lines that were removed, changed, or before which lines were inserted."""
    matcher = SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False)
    changed = (range(i1, max(i2, i1 + 1)) for tag, i1, i2, _, _ in matcher.get_opcodes() if tag != "equal")
    return [line + 1 for lines in changed for line in lines]


def touched_names(source: str, lines: Sequence[int]) -> list[str]:
    """The innermost functions and classes around those lines, in order."""
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, scopes)]
    names: dict[str, None] = {}
    for line in lines:
        enclosing = [node for node in nodes if node.lineno <= line <= (node.end_lineno or node.lineno)]
        if enclosing:
            names[max(enclosing, key=lambda node: node.lineno).name] = None
    return list(names)


def sources(name: str, version: str, encoder: Encoder) -> Iterator[Trace]:
    texts = read_release(name, version)
    encoded = ((path, encoder.encode(texts[path])) for path in source_paths(texts))
    long_enough = ((path, ids) for path, ids in encoded if len(ids) >= CODE_PROMPT_LEN + MIN_LEN)
    chosen = [
        continuation(f"{name}-{version}/{path}", "code", ids, CODE_PROMPT_LEN)
        for path, ids in islice(long_enough, FILES_PER_PACKAGE)
    ]
    require_enough(chosen, f"{name} {version}")
    return iter(chosen)


def answer(question: Question, encoder: Encoder) -> Trace:
    texts = read_release(question.package, question.version)
    document, output = (file_text(texts, question, path) for path in (question.document, question.answer))
    name = f"{question.package}-{question.version}/{question.answer}"
    if question.heading:
        document, output = section(document, question.heading), section(output, question.heading)
        name += f"#{question.heading.strip()}"
    prompt = encoder.encode(document)[:MAX_DOCUMENT_LEN] + encoder.encode(f"\n\n{question.question}\n\n")
    return Trace(name, "qa", prompt, encoder.encode(output)[:MAX_OUTPUT_LEN])


def prose(page: Page, encoder: Encoder) -> Trace:
    text = file_text(read_release(page.package, page.version), page, page.path)
    return continuation(f"{page.package}-{page.version}/{page.path}", "chat", encoder.encode(text), CHAT_PROMPT_LEN)


def continuation(name: str, kind: str, ids: list[int], prompt_len: int) -> Trace:
    return Trace(name, kind, ids[:prompt_len], ids[prompt_len : prompt_len + MAX_OUTPUT_LEN])


def source_paths(texts: Mapping[str, str]) -> list[str]:
    """The package's own modules without tests and documentation, in order of the CRC-32 of their paths."""
    own = [path for path in texts if path.endswith(".py") and NOT_MODULES.isdisjoint(path.split("/"))]
    return sorted(own, key=lambda path: (zlib.crc32(path.encode()), path))


def section(text: str, heading: str) -> str:
    """The section of a reStructuredText file whose title begins with `heading`, up to the next title like it."""
    lines = text.splitlines(keepends=True)
    titles = [i for i in range(len(lines) - 1) if lines[i + 1].startswith("====") and lines[i].startswith("Release ")]
    begin = next((i for i in titles if lines[i].startswith(heading)), None)
    if begin is None:
        raise SetupError(f"no section begins with {heading!r}; titles: {[lines[i].strip() for i in titles[:5]]}.")
    return "".join(lines[begin : next((i for i in titles if i > begin), len(lines))])


def file_text(texts: Mapping[str, str], row: Question | Page, path: str) -> str:
    if path not in texts:
        raise SetupError(f"{row.package} {row.version} has no file {path}; the table in corpus.py is wrong.")
    return texts[path]


def require_enough(chosen: list[Trace], where: str) -> None:
    if len(chosen) < FILES_PER_PACKAGE:
        raise SetupError(f"{where} give {len(chosen)} traces, {FILES_PER_PACKAGE} are needed: choose other releases.")
