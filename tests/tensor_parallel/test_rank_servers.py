"""The processes of a server on two ranks: however one of them ends, none is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from rank_engines import NAME, running

from specserve_tensor_parallel.processes import WORKER

KILLED = r"rank 1 \(process \d+\) was ended by signal 9 \(SIGKILL\)"
SECONDS = 60.0
BUSY = """
import sys, threading, time
from specserve_tensor_parallel.worker import end_with_input
threading.Thread(target=end_with_input, args=(sys.argv[1],), daemon=True).start()
print("busy", flush=True)
time.sleep(600)
"""
SERVE = ["serve", "--plugin", NAME, "--set", f"{NAME}.ranks=2", "--port", "0", "--kv-memory", "16M"]


def serve(model, folder):
    """A server of two ranks whose temporary files are in this folder, and rank 1 as soon as it is started."""
    command = [sys.executable, "-m", "specserve", *SERVE, str(model)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "TMPDIR": str(folder)}
    server = subprocess.Popen(command, start_new_session=True, env=environment, **pipes)
    return server, rank_of(server.pid)


def rank_of(pid):
    """The child of this process that is a rank."""
    command = ["ps", "--ppid", str(pid), "-o", "pid=,args="]
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
        if ranks := [int(line.split()[0]) for line in lines if WORKER in line]:
            return ranks[0]
        time.sleep(0.02)
    raise TimeoutError("no rank was started")


def wait_for_end(pid):
    deadline = time.monotonic() + SECONDS
    while running([pid]) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not running([pid])


def test_a_server_whose_rank_is_killed_says_so_once_and_exits_with_1(toy_model, tmp_path):
    server, rank = serve(toy_model, tmp_path)
    assert server.stdout.readline().startswith("specserve: ready")
    os.kill(rank, signal.SIGKILL)
    _, errors = server.communicate(timeout=60)
    assert server.returncode == 1
    assert len(re.findall(KILLED, errors)) == 1
    assert "Traceback" not in errors
    wait_for_end(rank)
    assert not list(tmp_path.glob("specserve-ranks-*"))


@pytest.mark.sweep
def test_ctrl_c_while_ranks_load_ends_all_of_them(toy_model, tmp_path):
    server, rank = serve(toy_model, tmp_path)
    os.kill(server.pid, signal.SIGINT)
    _, errors = server.communicate(timeout=60)
    assert server.returncode == 0
    assert "Traceback" not in errors
    wait_for_end(rank)
    assert not list(tmp_path.glob("specserve-ranks-*"))


def test_a_server_that_is_killed_leaves_no_rank(toy_model, tmp_path):
    server, rank = serve(toy_model, tmp_path)
    server.stdout.readline()
    server.kill()
    server.communicate(timeout=60)
    wait_for_end(rank)
    assert not list(tmp_path.glob("specserve-ranks-*"))


def test_a_rank_ends_with_its_input_whatever_it_is_doing(tmp_path):
    """As while it loads: it hears of nothing else then."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", BUSY, str(tmp_path / "ranks")], **pipes) as rank:
        assert rank.stdout.readline() == "busy\n"
        rank.stdin.close()
        assert rank.wait(SECONDS) == 0
