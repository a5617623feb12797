"""How files become prompts and outputs."""

from __future__ import annotations

import pytest
from benchmarks.replay.archives import SetupError
from benchmarks.replay.corpus import EditPair
from benchmarks.replay.texts import edit, section, source_paths, touched_names
from benchmarks.replay.traces import digest, read_traces

from specserve_bench.replay.trace import Trace

SOURCE = "class A:\n    def f(self):\n        return 1\n\n    x = 2\n" + "y = 0\n" * 100
HISTORY = "Notes\n=====\n\nRelease 2.1 (today)\n====\n\nnew\n\nRelease 2.0\n====\n\nold\n"


class Characters:
    """A token is a character."""

    def encode(self, text: str) -> list[int]:
        return list(map(ord, text))


def test_the_innermost_names_around_changed_lines_are_named():
    assert touched_names(SOURCE, [3, 5, 7]) == ["f", "A"]


def test_an_edit_names_what_changed_and_puts_out_the_whole_new_file():
    new = SOURCE.replace("return 1", "return 2")
    trace = edit(EditPair("p", "1", "2"), "a.py", SOURCE, new, Characters())
    assert "".join(map(chr, trace.prompt)) == f"{SOURCE}\n\nChange f of a.py as in p 2. The whole new file:\n\n"
    assert "".join(map(chr, trace.output)) == new


def test_a_file_that_became_another_is_no_edit():
    assert edit(EditPair("p", "1", "2"), "a.py", SOURCE, "z = 1\n" * 105, Characters()) is None


def test_a_section_ends_at_the_next_title():
    assert section(HISTORY, "Release 2.1 ") == "Release 2.1 (today)\n====\n\nnew\n\n"
    with pytest.raises(SetupError, match="no section begins with 'Release 3"):
        section(HISTORY, "Release 3")


def test_tests_and_documentation_are_no_sources():
    texts = dict.fromkeys(["p/a.py", "p/b.py", "tests/c.py", "docs/conf.py", "p/d.rst", "setup.py"], "")
    assert sorted(source_paths(texts)) == ["p/a.py", "p/b.py"]


def test_texts_of_ones_own_are_read_from_a_folder(tmp_path):
    (tmp_path / "mine.jsonl").write_text('{"name": "n", "kind": "mail", "prompt": "x = 1", "output": "y"}\n\n')
    (trace,) = read_traces(tmp_path)
    assert (trace.name, trace.kind) == ("n", "mail")
    assert len(trace.prompt) > len(trace.output) > 0


def test_a_line_with_a_wrong_field_is_refused_by_file(tmp_path):
    (tmp_path / "mine.jsonl").write_text('{"name": "n", "kind": "mail", "prompt": 1, "output": "y"}\n')
    with pytest.raises(SetupError, match=r"mine\.jsonl: .*name, kind, prompt, output"):
        read_traces(tmp_path)


def test_other_traces_have_another_digest():
    assert digest([Trace("n", "k", [1], [2])]) != digest([Trace("n", "k", [1], [3])])
