"""What a check raises becomes a row, and the checks behind it go on."""

from __future__ import annotations

import pytest
from found import statuses

from specserve.errors import ModelError
from specserve_workbench.doctor.case import Once
from specserve_workbench.doctor.examine import examine
from specserve_workbench.doctor.needed import UnknownError, needed
from specserve_workbench.doctor.rows import Row, bytes_text, rows_of


def half_done(case):
    yield Row("first half", "ok", "fine")
    raise ZeroDivisionError("by nothing")


def refused(case):
    raise ModelError("this model\ncannot be served. Choose another.")


def depends(case):
    with needed("the model was not found"):
        raise ModelError("said before")
    yield Row("depends", "ok", "never")


def exits(case):
    raise SystemExit(3)


def last(case):
    yield Row("last", "ok", "reached")


def test_a_check_that_raises_is_a_failed_row_and_the_others_go_on(make_case):
    rows = rows_of(make_case(), half_done, refused, depends, exits, last)
    assert [(row.check, row.status) for row in rows] == [
        ("first half", "ok"),
        ("half done", "failed"),
        ("refused", "failed"),
        ("depends", "note"),
        ("exits", "failed"),
        ("last", "ok"),
    ]
    assert "ZeroDivisionError: by nothing" in rows[1].found
    assert rows[2].found == "this model cannot be served. Choose another."
    assert rows[3].found == "not checked: the model was not found."


def test_a_section_that_raises_is_a_failed_row(make_case):
    def broken_import(case):
        raise ModuleNotFoundError("No module named 'torch'")

    first, second = examine(make_case(), {"one": (broken_import, last), "two": (last,)})
    assert statuses(first.rows) == {"broken import": "failed", "last": "ok"}
    assert (second.name, statuses(second.rows)) == ("two", {"last": "ok"})


def test_an_interrupt_is_the_users(make_case):
    def interrupted(case):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rows_of(make_case(), interrupted)


def test_a_fact_is_found_once_and_so_is_its_error():
    calls = []

    def find():
        calls.append(1)
        raise UnknownError("nothing")

    fact = Once(find)
    for _ in range(2):
        with pytest.raises(UnknownError, match="nothing"):
            fact()
    assert len(calls) == 1
    none = Once(lambda: calls.append(2))
    assert (none(), none(), calls) == (None, None, [1, 2])


def test_sizes_are_readable():
    assert [bytes_text(size) for size in (1.5 * 2**30, 27 * 2**20, 4096)] == ["1.5 GiB", "27 MiB", "4 KiB"]
