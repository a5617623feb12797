"""No fresh process dies of first requests that come at once, and all of them have their answers, in both forms of the
server.

`make test` divides its trials between the forms; `make test-all` makes all of them in each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import pytest
from packaging.version import Version

import both_forms
from cold_start.servers import FIRST_REQUESTS, busy_cores, serve_first_requests
from server_process import FORMS, path_with_tests
from soak.setting import TEMPLATE
from specserve_workbench.testing.toy import write_checkpoint


def trials(forms, few, many):
    """Parameters: form and number of trials."""
    return [(form, few) for form in forms] + [pytest.param(form, many, marks=pytest.mark.sweep) for form in forms]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = write_checkpoint(tmp_path_factory.mktemp("cold"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def run_fresh(*arguments):
    """A process of its own; its exit code, output and errors."""
    command = [sys.executable, *(str(one) for one in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ | path_with_tests())
    return done.returncode, done.stdout, done.stderr[-4000:]


def those_that_died(tables, form, model, first, count):
    """Of `count` fresh processes: seed, exit code and errors."""
    code, said, errors = run_fresh("-m", "cold_start.forked", tables, form, model, first, count)
    assert code == 0, errors
    return json.loads(said)


@pytest.mark.parametrize(("form", "processes"), trials(both_forms.FORMS, 8, 200))
def test_eight_threads_that_prepare_first_requests_end_no_process(model, form, processes):
    assert those_that_died("tables", form, model, 1000 * processes, processes) == []


@pytest.mark.parametrize(("form", "seed"), [("direct", 0), ("socket", 1), ("direct", 2)])
def test_nor_do_they_where_nothing_was_imported_before(model, form, seed):
    assert run_fresh("-m", "cold_start.first_threads", form, model, seed) == (0, "", "")


@pytest.mark.skipif(Version(version("msgspec")) >= Version("0.23"), reason="msgspec 0.23 makes these tables itself")
@pytest.mark.parametrize("form", ["direct", pytest.param("socket", marks=pytest.mark.sweep)])
def test_without_the_tables_of_structs_such_a_process_is_killed(model, form):
    """The trial above finds what it is made for. On idle cores most of them are killed by a signal, others may fail."""
    died = those_that_died("no-tables", form, model, 0, 200)
    assert any(code < 0 for _, code, _ in died), died


@pytest.mark.parametrize("processes", [2, pytest.param(20, marks=pytest.mark.sweep)])
def test_engines_that_start_at_once_in_a_fresh_process_answer_the_same(model, processes):
    for _ in range(processes):
        assert run_fresh("-m", "cold_start.first_engines", model) == (0, "", "")


@pytest.mark.parametrize(("form", "servers"), trials(FORMS, 1, 20))
def test_fresh_servers_on_busy_cores_answer_all_first_requests(model, tmp_path, form, servers):
    logs = [tmp_path / f"log-{i}" for i in range(servers)]
    with busy_cores(), ThreadPoolExecutor(2) as pairs:
        answered = list(pairs.map(lambda log: serve_first_requests(model, log, form), logs))
    for answers in zip(*answered, strict=True):
        every = {answer for of_server in answers for answer in of_server}
        assert {answer.status for answer in every} == {200}
        assert len(every) == 1, "one seed, one answer"
    assert sum(len(of_body) for of_body in answered[0]) == FIRST_REQUESTS
