"""No fresh process dies of first requests that come at once, and all of them have their answers."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cold_start.servers import FIRST_REQUESTS, busy_cores, serve_first_requests
from soak.setting import TEMPLATE
from specserve_workbench.testing.toy import write_checkpoint

TESTS = Path(__file__).parents[1]
WITHOUT_TABLES = """
import runpy, specserve.struct_tables
specserve.struct_tables.build_struct_tables = frozenset
runpy.run_module("cold_start.first_threads", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = write_checkpoint(tmp_path_factory.mktemp("cold"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def run_fresh(*arguments):
    """A process of its own; its exit code and errors."""
    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, *(str(one) for one in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | {"PYTHONPATH": path})
    return done.returncode, done.stderr[-4000:]


@pytest.mark.parametrize("processes", [50, pytest.param(200, marks=pytest.mark.sweep)])
def test_eight_threads_that_prepare_first_requests_end_no_process(model, processes):
    seeds = range(1000 * processes, 1000 * processes + processes)
    died = [(seed, *ran) for seed in seeds if (ran := run_fresh("-m", "cold_start.first_threads", model, seed))[0]]
    assert died == []


def test_without_the_tables_of_structs_one_of_twenty_such_processes_dies(model):
    """The trial above finds what it is made for."""
    codes = (run_fresh("-c", WITHOUT_TABLES, model, seed)[0] for seed in range(20))
    assert any(code < 0 for code in codes)


@pytest.mark.parametrize("processes", [2, pytest.param(20, marks=pytest.mark.sweep)])
def test_engines_that_start_at_once_in_a_fresh_process_answer_the_same(model, processes):
    for _ in range(processes):
        assert run_fresh("-m", "cold_start.first_engines", model) == (0, "")


@pytest.mark.parametrize("servers", [10, pytest.param(20, marks=pytest.mark.sweep)])
def test_fresh_servers_on_busy_cores_answer_all_first_requests(model, tmp_path, servers):
    with busy_cores(), ThreadPoolExecutor(2) as pairs:
        answered = list(pairs.map(lambda i: serve_first_requests(model, tmp_path / f"log-{i}"), range(servers)))
    for answers in zip(*answered, strict=True):
        every = {answer for of_server in answers for answer in of_server}
        assert {answer.status for answer in every} == {200}
        assert len(every) == 1, "one seed, one answer"
    assert sum(len(of_body) for of_body in answered[0]) == FIRST_REQUESTS
