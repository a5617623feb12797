"""How files and bodies become slices of text: whole, cut where tokens begin, and strictly UTF-8."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specserve.confine import OutsideRootError, find_root
from specserve.errors import ConfigError, RequestError
from specserve_ngram.corpora.documents import SLICE, Documents, JsonLines, TextFile, split
from specserve_ngram.corpora.errors import CorpusError
from specserve_ngram.corpora.paths import ROOT, client_source, operator_source

if TYPE_CHECKING:
    from pathlib import Path

    from specserve_ngram.corpora.documents import Source


def documents(source: Source) -> list[str]:
    """The texts of a source, put together again."""
    texts = [""]
    for part in source.slices():
        texts[-1] += part.text
        if part.ends:
            texts.append("")
    assert texts.pop() == ""
    return texts


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_text_file_is_one_document_with_characters_across_blocks(tmp_path: Path) -> None:
    text = "é漢🙂\r\n" * SLICE
    source = TextFile(write(tmp_path / "a.txt", text), "a.txt")
    parts = list(source.slices())
    assert documents(source) == [text]
    assert max(len(part.text) for part in parts) <= SLICE
    assert [part.bytes_read for part in parts] == sorted(part.bytes_read for part in parts)
    assert parts[-1].bytes_read == source.size == len(text.encode())


def test_every_line_of_a_jsonl_file_is_a_document(tmp_path: Path) -> None:
    lines = [json.dumps("one\ntwo"), "", json.dumps({"text": "three", "id": 7}), json.dumps("x" * (3 * SLICE))]
    source = JsonLines(write(tmp_path / "a.jsonl", "\n".join(lines)), "a.jsonl")
    assert documents(source) == ["one\ntwo", "three", "x" * (3 * SLICE)]


def test_documents_are_counted_in_bytes(tmp_path: Path) -> None:
    source = Documents(["é" * (SLICE + 1), "", "b"])
    assert documents(source) == ["é" * (SLICE + 1), "", "b"]
    assert list(source.slices())[-1].bytes_read == source.size == 2 * SLICE + 3


@settings(deadline=None)
@given(lines=st.lists(st.text(alphabet="ab \n", max_size=40_000), max_size=4))
def test_cutting_loses_nothing_and_keeps_to_the_size(lines: list[str]) -> None:
    text = "\n".join(lines)
    parts = list(split(text))
    assert "".join(part for part, _ in parts) == text
    assert all(0 < len(part) <= SLICE for part, _ in parts[:-1])
    assert [ends for _, ends in parts] == [False] * (len(parts) - 1) + [True]


def test_a_long_text_is_cut_before_a_line_that_is_not_indented() -> None:
    function = "def f():\n    return 1\n\n    # more\n"
    parts = [part for part, _ in split(function * 2000)]
    assert len(parts) > 1
    assert all(part.startswith("def f") for part in parts)
    indented = [part for part, _ in split("    x = 1\n" * 4000)]
    assert all(part.startswith("    x") for part in indented)
    assert [len(part) for part, _ in split("x" * (SLICE + 5))] == [SLICE, 5]


@pytest.mark.parametrize("suffix", ["txt", "jsonl"])
@pytest.mark.parametrize(("lead", "bad"), [(0, b"\xff"), (SLICE - 1, b"\xe6\xbc"), (3 * SLICE, b"\xc3(")])
def test_what_is_not_utf8_is_named_with_its_byte(tmp_path: Path, suffix: str, lead: int, bad: bytes) -> None:
    path = write(tmp_path / f"a.{suffix}", b"a" * lead + bad)
    with pytest.raises(CorpusError, match=rf"is not UTF-8: .* at byte {lead}\. Convert it"):
        documents(operator_source(str(path)))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2 is not valid JSON"),
        ("7", "line 2 must be a JSON string or an object whose .text. is a string"),
        ('{"txt": "a"}', "line 2 must be"),
        ("[" * 10**5, "line 2 is not valid JSON|line 2 must be"),
    ],
)
def test_a_line_that_is_no_document_is_named_with_its_number(tmp_path: Path, line: str, said: str) -> None:
    path = write(tmp_path / "a.jsonl", f'"fine"\n{line}\n')
    with pytest.raises(CorpusError, match=said):
        documents(operator_source(str(path)))


def test_a_line_beyond_all_bounds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specserve_ngram.corpora.documents.MAX_LINE", 2**20)
    path = write(tmp_path / "a.jsonl", b'"' + b"a" * 2**20 + b'"')
    with pytest.raises(CorpusError, match="line 1 is longer than 1 MiB"):
        documents(operator_source(str(path)))


def test_a_client_names_files_inside_the_root_only(tmp_path: Path) -> None:
    (tmp_path / "root" / "sub").mkdir(parents=True)
    root = find_root(ROOT, str(tmp_path / "root"))
    write(tmp_path / "root" / "sub" / "in.txt", "in")
    outside = write(tmp_path / "out.txt", "out")
    (tmp_path / "root" / "link.txt").symlink_to(outside)
    (tmp_path / "root" / "near.txt").symlink_to(tmp_path / "root" / "sub" / "in.txt")
    for path in ("sub/in.txt", "near.txt", str(tmp_path / "root" / "sub" / "in.txt"), "sub/../sub/in.txt"):
        assert documents(client_source(path, root)) == ["in"]
    for path in ("link.txt", "../out.txt", str(outside), "/nowhere/at/all", "sub/../../out.txt"):
        with pytest.raises(OutsideRootError, match=r"is not inside ngram\.corpus_root"):
            client_source(path, root)


def test_without_a_root_a_client_names_no_file() -> None:
    with pytest.raises(OutsideRootError, match="reads no files for clients"):
        client_source("a.txt", None)


def test_a_link_that_takes_the_files_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    root = find_root(ROOT, str(tmp_path / "root"))
    target = write(tmp_path / "root" / "a.txt", "a")
    source = client_source("a.txt", root)
    target.unlink()
    target.symlink_to(write(tmp_path / "secret.txt", "secret"))
    with pytest.raises(CorpusError, match="was moved or replaced"):
        documents(source)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none.txt", "there is no file"),
        (".", "is a directory"),
        ("pipe", "is not a regular file"),
        ("a\0b", "not a us"),
    ],
)
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, name: str, said: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RequestError, match=said) as refused:
        client_source(name, find_root(ROOT, str(tmp_path)))
    assert (refused.value.status, refused.value.param) == (400, "path")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/no/such/place", r" = '/no/such/place' is not a directory\. Create"),
        ("~nobody-here/x", ": .*not a usable path"),
    ],
)
def test_a_root_that_is_no_directory_stops_start_up(path: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"ngram\.corpus_root" + said):
        find_root(ROOT, path)


def test_a_clients_path_has_no_home(tmp_path: Path) -> None:
    (tmp_path / "~").mkdir()
    write(tmp_path / "~" / "a.txt", "a")
    assert documents(client_source("~/a.txt", find_root(ROOT, str(tmp_path)))) == ["a"]
